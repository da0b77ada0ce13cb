# cmake --install: the command, the compiler library and its header, the runtime archive that
# generated libraries link, the std library, manual page, completion, pkg-config and CMake packages.
include(CMakePackageConfigHelpers)

target_include_directories(hadalc INTERFACE $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
foreach(library hadaltext hadal_threads ${HADAL_MPI_TARGETS})
  target_include_directories(${library} INTERFACE $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
endforeach()
install(TARGETS hadal EXPORT hadal-targets RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(TARGETS hadalc hadaltext hadal_threads ${HADAL_MPI_TARGETS} EXPORT hadal-targets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(TARGETS hadalrt ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY include/hadal DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(DIRECTORY frontend/std DESTINATION ${CMAKE_INSTALL_DATADIR}/hadal)

set(HADAL_CMAKE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/hadal)
configure_package_config_file(cmake/hadal-config.cmake.in ${CMAKE_BINARY_DIR}/hadal-config.cmake
  INSTALL_DESTINATION ${HADAL_CMAKE_DIR})
write_basic_package_version_file(${CMAKE_BINARY_DIR}/hadal-config-version.cmake
  COMPATIBILITY SameMinorVersion)
install(EXPORT hadal-targets NAMESPACE hadal:: DESTINATION ${HADAL_CMAKE_DIR})
install(FILES ${CMAKE_BINARY_DIR}/hadal-config.cmake ${CMAKE_BINARY_DIR}/hadal-config-version.cmake
  cmake/hadal-model.cmake DESTINATION ${HADAL_CMAKE_DIR})

configure_file(cmake/hadal.pc.in ${CMAKE_BINARY_DIR}/hadal.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/hadal.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

# made by the command itself, from the same tables as --help
add_custom_command(OUTPUT ${CMAKE_BINARY_DIR}/hadal.1 ${CMAKE_BINARY_DIR}/hadal.bash
  COMMAND hadal man > ${CMAKE_BINARY_DIR}/hadal.1
  COMMAND hadal completion bash > ${CMAKE_BINARY_DIR}/hadal.bash
  DEPENDS hadal VERBATIM)
add_custom_target(hadal_generated_pages ALL DEPENDS ${CMAKE_BINARY_DIR}/hadal.1)
install(FILES ${CMAKE_BINARY_DIR}/hadal.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
install(FILES ${CMAKE_BINARY_DIR}/hadal.bash RENAME hadal
  DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
install(FILES LICENSE README.md CHANGELOG.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
