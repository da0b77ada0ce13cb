# The Python that `hadal compile --emit=python` copies (codegen/module/python/) as a constant of the compiler.
set(PYTHON_FILE ${CMAKE_SOURCE_DIR}/codegen/module/python/model.py)
set(PYTHON_C ${CMAKE_BINARY_DIR}/python_sources.c)
add_custom_command(OUTPUT ${PYTHON_C}
  COMMAND ${CMAKE_COMMAND} -DOUT=${PYTHON_C} "-DFILES=${PYTHON_FILE}" -DHEADER=codegen/module/python.h
    -DTYPE=hcg_python_source -DARRAY=hcg_python_sources -P ${CMAKE_SOURCE_DIR}/cmake/embed.cmake
  DEPENDS ${PYTHON_FILE} ${CMAKE_SOURCE_DIR}/cmake/embed.cmake VERBATIM
  COMMENT "Joining the source of Python classes")
target_sources(hadal_core PRIVATE ${PYTHON_C})
