# The runtime for architectures that this machine is not of, each where its cross compiler is
# installed: lib/hadal/ARCH-linux-gnu/libhadalrt.a, which `hadal compile --target` links.
set(FOREIGN_FLAGS -std=gnu17 -O2 -fPIC -fvisibility=hidden -fopenmp -D_GNU_SOURCE
  -DHADAL_VERSION="${PROJECT_VERSION}" -I${CMAKE_SOURCE_DIR} -I${CMAKE_SOURCE_DIR}/include -Wall -Wextra
  $<$<BOOL:${HADAL_WERROR}>:-Werror>)

function(add_foreign_runtime arch)
  find_program(HADAL_CC_${arch} ${arch}-linux-gnu-gcc)
  find_program(HADAL_AR_${arch} ${arch}-linux-gnu-ar)
  if(NOT HADAL_CC_${arch} OR NOT HADAL_AR_${arch})
    return()
  endif()
  set(archive ${CMAKE_BINARY_DIR}/lib/hadal/${arch}-linux-gnu/libhadalrt.a)
  set(work ${CMAKE_BINARY_DIR}/runtime-${arch})
  file(MAKE_DIRECTORY ${work} ${CMAKE_BINARY_DIR}/lib/hadal/${arch}-linux-gnu)
  foreach(source ${RUNTIME_SOURCES})
    get_filename_component(name ${source} NAME_WE)
    add_custom_command(OUTPUT ${work}/${name}.o
      COMMAND ${HADAL_CC_${arch}} ${FOREIGN_FLAGS} -MD -MF ${work}/${name}.d -MT ${work}/${name}.o
        -c ${source} -o ${work}/${name}.o 
      DEPENDS ${source} DEPFILE ${work}/${name}.d VERBATIM COMMAND_EXPAND_LISTS
      COMMENT "Building runtime/${name}.c for ${arch}")
    list(APPEND objects ${work}/${name}.o)
  endforeach()
  add_custom_command(OUTPUT ${archive}
    COMMAND ${CMAKE_COMMAND} -E rm -f ${archive}
    COMMAND ${HADAL_AR_${arch}} rcs ${archive} ${objects}
    DEPENDS ${objects} VERBATIM COMMENT "Linking the runtime for ${arch}")
  add_custom_target(hadalrt_${arch} ALL DEPENDS ${archive})
  install(FILES ${archive} DESTINATION ${CMAKE_INSTALL_LIBDIR}/hadal/${arch}-linux-gnu COMPONENT hadal)
endfunction()

foreach(arch aarch64 x86_64)
  if(NOT CMAKE_SYSTEM_PROCESSOR STREQUAL arch)
    add_foreign_runtime(${arch})
  endif()
endforeach()
