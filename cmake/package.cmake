# cpack (in the build folder): Debian packages of the components of install.cmake.
#
#   hadal_VERSION_ARCH.deb         the command, what it needs, and the libraries of the compiler
#   libhadal-dev_VERSION_ARCH.deb  headers, pkg-config, CMake package
#   hadal-mpi_VERSION_ARCH.deb     where there is an MPI: models that are divided over processes
#
# dpkg-shlibdeps finds what is linked. LLVM is opened when code is made, and gcc is called to link a
# model, so that it cannot find these two.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME hadal)
set(CPACK_PACKAGE_CONTACT "Developers of Hadal <hadal@localhost>" CACHE STRING "Maintainer of the Debian packages")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "compiler for language models that attend across depth")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_VERBATIM_VARIABLES ON)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS
  OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)

set(CPACK_COMPONENTS_ALL hadal dev)
if(HADAL_MPI_TARGETS)
  list(APPEND CPACK_COMPONENTS_ALL mpi)
endif()
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION devel)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${CMAKE_LIBRARY_OUTPUT_DIRECTORY})

set(CPACK_DEBIAN_HADAL_PACKAGE_NAME hadal)
set(CPACK_DEBIAN_HADAL_PACKAGE_DEPENDS "libllvm19, gcc, libc6-dev")
set(CPACK_DEBIAN_HADAL_DESCRIPTION "The command and the compiler: from a description of a model, or a folder with
config.json and safetensors, to a shared library with a C header and packed
weights, which needs the C library and OpenMP alone.")
set(CPACK_DEBIAN_DEV_PACKAGE_NAME libhadal-dev)
set(CPACK_DEBIAN_DEV_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEV_PACKAGE_DEPENDS "hadal (= ${PROJECT_VERSION})")
set(CPACK_DEBIAN_DEV_DESCRIPTION "Headers, pkg-config and CMake package, for programs that call the compiler
(libhadalc), tokenizers (libhadaltext) or ranks that are threads
(libhadal_threads).")
set(CPACK_DEBIAN_MPI_PACKAGE_NAME hadal-mpi)
set(CPACK_DEBIAN_MPI_PACKAGE_DEPENDS "hadal (= ${PROJECT_VERSION})")
set(CPACK_DEBIAN_MPI_DESCRIPTION "Models that are divided over processes: what carries the bytes between them,
by the MPI that it was built with.")

# Each package has its copyright file, in Debian's format, made from LICENSE. An installation without packages has LICENSE itself.
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/LICENSE)
file(READ ${CMAKE_SOURCE_DIR}/LICENSE license)
if(NOT license MATCHES "^MIT License\n\nCopyright \\(c\\) ([^\n]+)\n\n(.+)$")
  message(FATAL_ERROR "LICENSE is not as cmake/package.cmake reads it: a title, a copyright line, the terms")
endif()
set(HADAL_COPYRIGHT "${CMAKE_MATCH_1}")
set(HADAL_TERMS "${CMAKE_MATCH_2}")
string(REGEX REPLACE "\n+$" "" HADAL_TERMS "${HADAL_TERMS}")
string(REPLACE "\n\n" "\n.\n" HADAL_TERMS "${HADAL_TERMS}")
string(REPLACE "\n" "\n " HADAL_TERMS " ${HADAL_TERMS}")
configure_file(cmake/copyright.in ${CMAKE_BINARY_DIR}/copyright @ONLY)
foreach(component ${CPACK_COMPONENTS_ALL})
  string(TOUPPER ${component} name)
  install(FILES ${CMAKE_BINARY_DIR}/copyright DESTINATION ${CMAKE_INSTALL_DATAROOTDIR}/doc/${CPACK_DEBIAN_${name}_PACKAGE_NAME}
    COMPONENT ${component} EXCLUDE_FROM_ALL)
endforeach()
include(CPack)
