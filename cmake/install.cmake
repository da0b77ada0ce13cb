# cmake --install: the command, the compiler library and its header, the runtime archive that
# generated libraries link, the std library, manual page, completion, pkg-config and CMake packages.
#
# Components, which are Debian packages (package.cmake): hadal, what the command needs to compile and
# run models; dev, for programs that use the compiler or a tokenizer as a library; mpi, for models on
# many machines.
include(CMakePackageConfigHelpers)

target_include_directories(hadalc INTERFACE $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
foreach(library hadaltext hadal_threads ${HADAL_MPI_TARGETS})
  target_include_directories(${library} INTERFACE $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
endforeach()
install(TARGETS hadal EXPORT hadal-targets RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT hadal)
install(TARGETS hadalc hadaltext hadal_threads EXPORT hadal-targets
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT hadal NAMELINK_COMPONENT dev)
install(TARGETS hadalrt ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT hadal)
install(DIRECTORY include/hadal DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT dev)
install(DIRECTORY frontend/std DESTINATION ${CMAKE_INSTALL_DATADIR}/hadal COMPONENT hadal)

set(HADAL_CMAKE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/hadal)
configure_package_config_file(cmake/hadal-config.cmake.in ${CMAKE_BINARY_DIR}/hadal-config.cmake
  INSTALL_DESTINATION ${HADAL_CMAKE_DIR})
write_basic_package_version_file(${CMAKE_BINARY_DIR}/hadal-config-version.cmake
  COMPATIBILITY SameMinorVersion)
install(EXPORT hadal-targets NAMESPACE hadal:: DESTINATION ${HADAL_CMAKE_DIR} COMPONENT dev)
if(HADAL_MPI_TARGETS) # with the name that the command opens
  install(TARGETS ${HADAL_MPI_TARGETS} EXPORT hadal-mpi-targets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT mpi)
  install(EXPORT hadal-mpi-targets NAMESPACE hadal:: DESTINATION ${HADAL_CMAKE_DIR} COMPONENT mpi)
endif()
install(FILES ${CMAKE_BINARY_DIR}/hadal-config.cmake ${CMAKE_BINARY_DIR}/hadal-config-version.cmake
  cmake/hadal-model.cmake DESTINATION ${HADAL_CMAKE_DIR} COMPONENT dev)

# pkg-config tells where it lies, so that an installation can be moved
if(IS_ABSOLUTE ${CMAKE_INSTALL_LIBDIR})
  set(HADAL_PC_PREFIX ${CMAKE_INSTALL_PREFIX})
  set(HADAL_PC_LIBDIR ${CMAKE_INSTALL_LIBDIR})
else()
  file(RELATIVE_PATH up /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix)
  string(REGEX REPLACE "/$" "" up "${up}")
  set(HADAL_PC_PREFIX "\${pcfiledir}/${up}")
  set(HADAL_PC_LIBDIR "\${prefix}/${CMAKE_INSTALL_LIBDIR}")
endif()
configure_file(cmake/hadal.pc.in ${CMAKE_BINARY_DIR}/hadal.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/hadal.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT dev)

# made by the command itself, from the same tables as --help
add_custom_command(OUTPUT ${CMAKE_BINARY_DIR}/hadal.1 ${CMAKE_BINARY_DIR}/hadal.bash
  COMMAND hadal man > ${CMAKE_BINARY_DIR}/hadal.1
  COMMAND hadal completion bash > ${CMAKE_BINARY_DIR}/hadal.bash
  DEPENDS hadal VERBATIM)
add_custom_target(hadal_generated_pages ALL DEPENDS ${CMAKE_BINARY_DIR}/hadal.1)
install(FILES ${CMAKE_BINARY_DIR}/hadal.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT hadal)
install(FILES ${CMAKE_BINARY_DIR}/hadal.bash RENAME hadal
  DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions COMPONENT hadal)
install(FILES LICENSE README.md CHANGELOG.md DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT hadal)
