# cmake --install: the command, the library, the runtime, the headers, the std library.
install(TARGETS hadal RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(TARGETS hadalc LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(TARGETS hadalrt ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY include/hadal DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(DIRECTORY frontend/std DESTINATION ${CMAKE_INSTALL_DATADIR}/hadal)
