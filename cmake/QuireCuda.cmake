# The CUDA backend: libquire_cuda.so, which the binary loads at run time where there is a GPU, from
#   src/**/*_cuda.cu, src/**/*_cuda.cc   the library
#   src/**/*_cuda_test.cc                cuda_test: labelled gpu, skipped where there is no GPU; those of
#                                        src/engine need only the library: tests/CMakeLists.txt
# Nothing else is compiled with, or linked to, anything of CUDA.

# A project that adds this folder asks for the kernels, which take minutes to compile.
set(cuda_default AUTO)
if(NOT PROJECT_IS_TOP_LEVEL)
  set(cuda_default OFF)
endif()
set(QUIRE_CUDA ${cuda_default} CACHE STRING "Build the CUDA backend: AUTO (where all that it takes is found), ON or OFF")
set_property(CACHE QUIRE_CUDA PROPERTY STRINGS AUTO ON OFF)
# Machine code for sm_80 and sm_90a, and PTX that newer drivers compile.
set(shipped_architectures 80-real 90a-real 90-virtual)
set(QUIRE_CUDA_ARCHITECTURES shipped CACHE STRING
    "GPU code to build, as CMAKE_CUDA_ARCHITECTURES has it, or shipped: ${shipped_architectures}")
set(cuda_architectures ${QUIRE_CUDA_ARCHITECTURES})
if(cuda_architectures STREQUAL shipped)
  set(cuda_architectures ${shipped_architectures})
endif()

# Without, kernels compile in less than half of the time: enough to see that they do. Not for a GPU: they are
# slow, and sums over ranks were seen to fail there (misaligned address).
option(QUIRE_CUDA_OPTIMISE "Optimise the GPU code" ON)

set(QUIRE_HAS_CUDA OFF)
if(QUIRE_CUDA STREQUAL OFF)
  message(STATUS "CUDA backend: OFF")
else()
  include(CheckLanguage)
  if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX} AND EXISTS /usr/local/cuda/bin/nvcc)
    set(CMAKE_CUDA_COMPILER /usr/local/cuda/bin/nvcc)
  endif()
  # CMake tests the compiler with this too.
  set(CMAKE_CUDA_ARCHITECTURES ${cuda_architectures})
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    enable_language(CUDA)
    find_package(CUDAToolkit 13)
    # The toolkit does not ship it.
    find_path(QUIRE_NCCL_INCLUDE_DIR nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS} DOC "Where nccl.h is")
    mark_as_advanced(QUIRE_NCCL_INCLUDE_DIR)
  endif()
  if(NOT CMAKE_CUDA_COMPILER)
    set(missing "no CUDA compiler works; set CUDACXX to the nvcc of a CUDA 13 toolkit")
  elseif(NOT CUDAToolkit_FOUND)
    set(missing "${CMAKE_CUDA_COMPILER} is of release ${CMAKE_CUDA_COMPILER_VERSION}; set CUDACXX to the nvcc of a CUDA 13 toolkit")
  elseif(NOT TARGET CUDA::cublasLt)
    set(missing "the CUDA toolkit has no cuBLAS; install NVIDIA's package libcublas-dev-13-0")
  elseif(NOT QUIRE_NCCL_INCLUDE_DIR)
    set(missing "nccl.h was not found; install NVIDIA's package libnccl-dev")
  else()
    set(QUIRE_HAS_CUDA ON)
  endif()
  if(QUIRE_HAS_CUDA)
    include(QuireCudaArchitectures)
    quire_check_cuda_architectures(${cuda_architectures})
    message(STATUS "CUDA backend: ON")
  elseif(QUIRE_CUDA STREQUAL ON)
    message(FATAL_ERROR "QUIRE_CUDA is ON, but ${missing}; or set QUIRE_CUDA to OFF.")
  else()
    message(STATUS "CUDA backend: OFF, because ${missing}")  # scripts/build.sh repeats this line
  endif()
endif()

# To be called once all folders' libraries are there.
function(quire_cuda_library)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/*_cuda.cu
       ${PROJECT_SOURCE_DIR}/src/*_cuda.cc)
  if(QUIRE_CCACHE)
    set(CMAKE_CUDA_COMPILER_LAUNCHER ${QUIRE_CCACHE})
  endif()
  add_library(quire_cuda_objects OBJECT ${sources})
  target_include_directories(quire_cuda_objects PUBLIC ${PROJECT_SOURCE_DIR}/include
                             ${PROJECT_SOURCE_DIR}/src)
  target_compile_features(quire_cuda_objects PUBLIC cxx_std_20)
  target_compile_options(quire_cuda_objects PRIVATE
    "$<$<COMPILE_LANGUAGE:CUDA>:-std=c++20;--expt-relaxed-constexpr;-lineinfo;-Xcompiler=-Wall,-Wextra>"
    $<$<AND:$<COMPILE_LANGUAGE:CUDA>,$<NOT:$<BOOL:${QUIRE_CUDA_OPTIMISE}>>>:--Ofast-compile=max>
    $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra>
    $<$<AND:$<COMPILE_LANGUAGE:CUDA>,$<BOOL:${QUIRE_WERROR}>>:-Werror=all-warnings>)
  set_target_properties(quire_cuda_objects PROPERTIES UNITY_BUILD OFF CUDA_ARCHITECTURES "${cuda_architectures}"
                        CUDA_EXTENSIONS OFF)
  # The toolkit's headers are no business of our warnings.
  target_include_directories(quire_cuda_objects SYSTEM PUBLIC ${CUDAToolkit_INCLUDE_DIRS}
                             ${QUIRE_NCCL_INCLUDE_DIR})
  target_link_libraries(quire_cuda_objects PUBLIC fmt::fmt Threads::Threads)

  # MODULE: nothing links to it. What it needs of the lower folders it has a copy of.
  add_library(quire_cuda MODULE)
  target_link_libraries(quire_cuda PRIVATE quire_cuda_objects quire_ops quire_dist quire_core quire_base CUDA::cudart_static
                        CUDA::cublasLt ${CMAKE_DL_LIBS})
  target_link_options(quire_cuda PRIVATE -Wl,--no-undefined -Wl,--exclude-libs,ALL)
  # Beside the binary, which looks for it there.
  set_target_properties(quire_cuda PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/src)
  if(QUIRE_INSTALL)
    install(TARGETS quire_cuda LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/quire COMPONENT cuda)
    if(NOT cuda_architectures STREQUAL shipped_architectures)
      install(CODE "message(WARNING \"libquire_cuda.so has GPU code for ${cuda_architectures} alone. \"
                                    \"scripts/build.sh release builds it for all GPUs that quire supports.\")"
              COMPONENT cuda)
    endif()
    if(NOT QUIRE_CUDA_OPTIMISE)
      install(CODE "message(WARNING \"libquire_cuda.so was built without optimisation. \"
                                    \"scripts/build.sh release builds it as shipped.\")"
              COMPONENT cuda)
    endif()
  endif()

  if(QUIRE_BUILD_TESTS)
    file(GLOB_RECURSE tests CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/*_cuda_test.cc)
    list(FILTER tests EXCLUDE REGEX "/src/engine/")
    quire_gpu_test(cuda_test SOURCES ${tests} DEPS quire_cuda_objects quire_ops quire_dist
                   CUDA::cudart_static CUDA::cublasLt ${CMAKE_DL_LIBS})
    set_target_properties(cuda_test PROPERTIES UNITY_BUILD OFF)
  endif()
endfunction()
