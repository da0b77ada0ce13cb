# LLVM is opened by the compiler when it first makes code: the names of its functions stand for
# pointers (codegen/emit/llvm.h). Here is what that takes: a header with a line for each row of
# llvm.def, and the name of the shared object, which the linker would have written down.
set(LLVM_ROWS ${CMAKE_SOURCE_DIR}/codegen/emit/llvm.def)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${LLVM_ROWS})
file(STRINGS ${LLVM_ROWS} rows REGEX "^F\\(")
set(names "/* Made of codegen/emit/llvm.def. */\n")
foreach(row ${rows})
  string(REGEX REPLACE "^F\\((.*)\\)$" "#define LLVM\\1 (*hcg_llvm_calls.\\1)\n" line "${row}")
  string(APPEND names "${line}")
endforeach()
file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/generated/llvm_names.h CONTENT "${names}" @ONLY)

file(REAL_PATH ${LLVM_LIB} LLVM_FILE)
get_filename_component(LLVM_SONAME ${LLVM_FILE} NAME)
get_filename_component(LLVM_FOLDER ${LLVM_FILE} DIRECTORY)
list(APPEND CMAKE_BUILD_RPATH ${LLVM_FOLDER}) # an installed compiler finds it where the system has it
add_library(hadal_llvm_names INTERFACE)
target_include_directories(hadal_llvm_names INTERFACE ${CMAKE_BINARY_DIR}/generated)
target_include_directories(hadal_llvm_names SYSTEM INTERFACE ${LLVM_INCLUDE})
target_compile_definitions(hadal_llvm_names INTERFACE HADAL_LLVM="${LLVM_SONAME}")
