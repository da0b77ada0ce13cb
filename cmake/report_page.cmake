# The page of `hadal report` (report/page/) as constants of the compiler: one C file, made anew when
# a file of the page changes.
set(PAGE_PARTS page.html style.css data.js view.js chart.js theme.js summary.js passes.js depth.js ledger.js memory.js time.js code.js compare.js life.js main.js runs.js)
set(PAGE_FILES)
foreach(part ${PAGE_PARTS})
  list(APPEND PAGE_FILES ${CMAKE_SOURCE_DIR}/report/page/${part})
endforeach()
set(PAGE_C ${CMAKE_BINARY_DIR}/report_page_parts.c)
add_custom_command(OUTPUT ${PAGE_C}
  COMMAND ${CMAKE_COMMAND} -DOUT=${PAGE_C} "-DFILES=${PAGE_FILES}"
    -DHEADER=report/page.h -DTYPE=report_page_part -DARRAY=report_page_parts -P ${CMAKE_SOURCE_DIR}/cmake/embed.cmake
  DEPENDS ${PAGE_FILES} ${CMAKE_SOURCE_DIR}/cmake/embed.cmake VERBATIM
  COMMENT "Joining the page of reports")
target_sources(hadal_core PRIVATE ${PAGE_C})
