# The Python that is copied into modules of `hadal compile --emit=torch` (torch/) as constants of the compiler.
set(TORCH_FILES ${CMAKE_SOURCE_DIR}/torch/module.py ${CMAKE_SOURCE_DIR}/torch/ops.py)
set(TORCH_C ${CMAKE_BINARY_DIR}/torch_sources.c)
add_custom_command(OUTPUT ${TORCH_C}
  COMMAND ${CMAKE_COMMAND} -DOUT=${TORCH_C} "-DFILES=${TORCH_FILES}"
    -DHEADER=torch/program.h -DTYPE=hpt_source -DARRAY=hpt_sources -P ${CMAKE_SOURCE_DIR}/cmake/embed.cmake
  DEPENDS ${TORCH_FILES} ${CMAKE_SOURCE_DIR}/cmake/embed.cmake VERBATIM
  COMMENT "Joining the sources of PyTorch modules")
target_sources(hadal_core PRIVATE ${TORCH_C})
