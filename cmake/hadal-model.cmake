# hadal_add_model(NAME spec.hadal [WEIGHTS file] [OPTIONS option...])
#
# Compiles a model at build time. The target NAME can be linked: its header NAME.h is found, and the
# packed weights lie beside the library as NAME.weights.
function(hadal_add_model name spec)
  cmake_parse_arguments(PARSE_ARGV 2 arg "" "WEIGHTS" "OPTIONS")
  set(out ${CMAKE_CURRENT_BINARY_DIR}/${name})
  get_filename_component(spec ${spec} ABSOLUTE)
  set(command hadal::hadal compile ${spec} -o ${out}/${name} ${arg_OPTIONS})
  set(inputs ${spec})
  if(arg_WEIGHTS)
    get_filename_component(weights ${arg_WEIGHTS} ABSOLUTE)
    list(APPEND command --weights ${weights})
    list(APPEND inputs ${weights})
  endif()
  file(MAKE_DIRECTORY ${out})
  add_custom_command(OUTPUT ${out}/lib${name}.so ${out}/${name}.h COMMAND ${command}
    DEPENDS ${inputs} VERBATIM COMMENT "Compiling model ${name}")
  add_custom_target(${name}_model DEPENDS ${out}/lib${name}.so ${out}/${name}.h)
  add_library(${name} SHARED IMPORTED GLOBAL)
  set_target_properties(${name} PROPERTIES IMPORTED_LOCATION ${out}/lib${name}.so
    INTERFACE_INCLUDE_DIRECTORIES ${out})
  add_dependencies(${name} ${name}_model)
endfunction()
