# Transports for models that are divided over ranks (include/hadal/hadal_comm.h): threads of one
# process always, MPI where there is one. Models need neither to be built, nor does the compiler.
set(HADAL_MPI AUTO CACHE STRING "libhadal_mpi: ON, OFF, or AUTO (if there is an MPI)")
set_property(CACHE HADAL_MPI PROPERTY STRINGS AUTO ON OFF)

add_library(hadal_threads SHARED comm/collective.c comm/slow_link.c comm/threads.c)
target_link_libraries(hadal_threads PRIVATE hadal_flags)
target_compile_options(hadal_threads PRIVATE -O2)
target_link_options(hadal_threads PRIVATE -Wl,--no-undefined)
set_target_properties(hadal_threads PROPERTIES VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR})

set(HADAL_MPI_TARGETS)
if(NOT HADAL_MPI STREQUAL "OFF")
  find_package(MPI COMPONENTS C)
  if(MPI_C_FOUND)
    add_library(hadal_mpi SHARED comm/collective.c comm/slow_link.c comm/mpi.c)
    target_link_libraries(hadal_mpi PRIVATE hadal_flags MPI::MPI_C)
    target_compile_options(hadal_mpi PRIVATE -O2)
    set_target_properties(hadal_mpi PROPERTIES VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR})
    set(HADAL_MPI_TARGETS hadal_mpi)
  elseif(HADAL_MPI STREQUAL "ON")
    message(FATAL_ERROR "HADAL_MPI is ON, but there is no MPI: install libopenmpi-dev (tools/deps.sh --mpi) or "
      "libmpich-dev, or name its compiler with -DMPI_C_COMPILER=mpicc.mpich")
  else()
    message(STATUS "No MPI: libhadal_mpi is left out, and models run on one machine "
      "(tools/deps.sh --mpi installs Open MPI)")
  endif()
endif()
