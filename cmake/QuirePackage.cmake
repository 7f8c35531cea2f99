# The Debian packages that CPack makes of what is installed (cpack -G DEB).

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME quire)
set(CPACK_PACKAGE_VENDOR "The quire authors")
set(CPACK_PACKAGE_CONTACT "The quire authors <quire@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "serves large language models from one binary")
set(where "any x86-64 processor")
if(QUIRE_HAS_CUDA)
  set(where "NVIDIA GPUs (with the package quire-cuda) or ${where}")
endif()
set(CPACK_PACKAGE_DESCRIPTION
    "quire runs Qwen, Llama, Mistral and Phi checkpoints as Hugging Face publishes them, as a server, in batches or in
a chat, on ${where}, with no Python
at run time. It comes with a small model that defines English words.")
# Not the last, for which CPack would take the summary alone.
set(CPACK_DEBIAN_PACKAGE_DESCRIPTION "${CPACK_PACKAGE_DESCRIPTION}")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
# The libraries' packages and versions are read off the binaries.
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEB_COMPONENT_INSTALL ON)

# quire: the program, which runs anywhere, and the bundled model.
set(CPACK_COMPONENTS_ALL Unspecified library dev)
set(CPACK_DEBIAN_UNSPECIFIED_PACKAGE_NAME quire)
set(CPACK_DEBIAN_UNSPECIFIED_DESCRIPTION "${CPACK_PACKAGE_DESCRIPTION}")

# libquire0.1 and libquire-dev, for programs that use quire as a library.
set(runtime libquire${api_version})
set(CPACK_DEBIAN_LIBRARY_PACKAGE_NAME ${runtime})
set(CPACK_DEBIAN_LIBRARY_PACKAGE_SECTION libs)
set(CPACK_COMPONENT_LIBRARY_DESCRIPTION
    "quire as a shared library: programs that are linked to it serve large language models themselves. The package
quire has a model to try it with.")
set(CPACK_DEBIAN_LIBRARY_PACKAGE_SUGGESTS quire)
set(CPACK_DEBIAN_DEV_PACKAGE_NAME libquire-dev)
set(CPACK_DEBIAN_DEV_PACKAGE_SECTION libdevel)
set(CPACK_COMPONENT_DEV_DESCRIPTION
    "quire's C++ headers, and what CMake and pkg-config take to build programs with libquire.so.")
set(CPACK_DEBIAN_DEV_PACKAGE_DEPENDS "${runtime} (= ${PROJECT_VERSION}), nlohmann-json3-dev")

if(QUIRE_HAS_CUDA)
  # quire-cuda: libquire_cuda.so, for the program and for the library. CUDA's own libraries come from NVIDIA's
  # repository: where they were not installed as packages, Debian's tools know neither their packages nor,
  # unless told, their folder.
  list(APPEND CPACK_COMPONENTS_ALL cuda)
  set(CPACK_DEBIAN_UNSPECIFIED_PACKAGE_SUGGESTS quire-cuda)
  set(CPACK_DEBIAN_LIBRARY_PACKAGE_SUGGESTS "quire, quire-cuda")
  set(CPACK_DEBIAN_CUDA_PACKAGE_NAME quire-cuda)
  set(CPACK_COMPONENT_CUDA_DESCRIPTION
      "quire's CUDA backend: the library that quire loads to run models on NVIDIA GPUs. It takes a driver of release
580 or later.")
  set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${CUDAToolkit_LIBRARY_DIR})
  set(release ${CUDAToolkit_VERSION_MAJOR}-${CUDAToolkit_VERSION_MINOR})
  set(CPACK_DEBIAN_CUDA_PACKAGE_DEPENDS
      "quire (= ${PROJECT_VERSION}) | ${runtime} (= ${PROJECT_VERSION}), libcublas-${release} | libcublas${CUDAToolkit_VERSION_MAJOR}")
  set(CPACK_DEBIAN_CUDA_PACKAGE_RECOMMENDS "libnccl2")
endif()
include(CPack)
