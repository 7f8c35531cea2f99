# Helpers that turn a folder into targets. Sources are found by name, so a new file or test is built
# as soon as it exists and none can be forgotten:
#   *_test.cc    one test binary for the folder
#   *_avx2.cc, *_avx512.cc    compiled for that instruction set; everything else for plain x86-64
#   *_cuda.cc, *_cuda_test.cc    left to cmake/QuireCuda.cmake and tests/CMakeLists.txt
#   main.cc      left to the executable

find_program(QUIRE_CCACHE ccache)
if(QUIRE_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${QUIRE_CCACHE})
endif()

# What every target is compiled with.
add_library(quire_options INTERFACE)
target_compile_features(quire_options INTERFACE cxx_std_20)
# GCC 12 finds overlaps in std::string that are not there (GCC bug 105651): hence -Wno-restrict.
target_compile_options(quire_options INTERFACE -Wall -Wextra -Wpedantic
                       $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>
                       $<$<BOOL:${QUIRE_WERROR}>:-Werror>)
target_include_directories(quire_options INTERFACE ${PROJECT_SOURCE_DIR}/include
                           ${PROJECT_SOURCE_DIR}/src)
if(QUIRE_SANITIZE)
  target_compile_options(quire_options INTERFACE -fsanitize=${QUIRE_SANITIZE}
                         -fno-omit-frame-pointer -fno-sanitize-recover=all
                         # GCC cannot follow values through the checks that sanitizers add.
                         $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
  target_link_options(quire_options INTERFACE -fsanitize=${QUIRE_SANITIZE})
endif()
if(QUIRE_BUILD_FUZZERS)
  target_compile_options(quire_options INTERFACE -fsanitize=fuzzer-no-link)
endif()
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)

# quire_library(<folder> DEPS <target>...): the library quire_<folder> from the *.cc of src/<folder> and its
# sub-folders, and <folder>_test from their *_test.cc files.
function(quire_library folder)
  cmake_parse_arguments(ARG "" "" "DEPS" ${ARGN})
  set(dir ${PROJECT_SOURCE_DIR}/src/${folder})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${dir}/*.cc)
  set(tests ${sources})
  list(FILTER tests INCLUDE REGEX "_test\\.cc$")
  list(FILTER tests EXCLUDE REGEX "_cuda_test\\.cc$")
  list(FILTER sources EXCLUDE REGEX "(_test|_cuda|/main)\\.cc$")
  set(target quire_${folder})
  if(sources)
    add_library(${target} STATIC ${sources})
    target_link_libraries(${target} PUBLIC quire_options ${ARG_DEPS})
  else()
    add_library(${target} INTERFACE)
    target_link_libraries(${target} INTERFACE quire_options ${ARG_DEPS})
  endif()
  foreach(source ${sources})
    # The kernels take most of the time of a sanitized test of a model, and are few files.
    if(QUIRE_SANITIZE AND source MATCHES "_(cpu|avx2|avx512)\\.cc$")
      set_property(SOURCE ${source} APPEND PROPERTY COMPILE_OPTIONS -O2)
    endif()
    if(source MATCHES "_avx2\\.cc$")
      set_property(SOURCE ${source} APPEND PROPERTY COMPILE_OPTIONS -mavx2 -mfma -mf16c)
    elseif(source MATCHES "_avx512\\.cc$")
      set_property(SOURCE ${source} APPEND PROPERTY COMPILE_OPTIONS
        -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512bf16 -mavx512vnni -mfma -mf16c)
      # GCC 12 warns of its own intrinsics (GCC bug 105593).
      if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
        set_property(SOURCE ${source} APPEND PROPERTY COMPILE_OPTIONS
          -Wno-uninitialized -Wno-maybe-uninitialized)
      endif()
    endif()
  endforeach()
  if(tests AND QUIRE_BUILD_TESTS)
    quire_test(${folder}_test SOURCES ${tests} DEPS ${target})
  endif()
endfunction()

# quire_test(<name> SOURCES ... DEPS ...): a GoogleTest binary, each of its tests known to ctest.
# Tests find data through QUIRE_SOURCE_DIR. They run on the CPU, on machines with a GPU too.
function(quire_test name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS" ${ARGN})
  quire_test_binary(${name} SOURCES ${ARG_SOURCES} DEPS ${ARG_DEPS})
  gtest_discover_tests(${name} DISCOVERY_TIMEOUT 60
                       PROPERTIES TIMEOUT 600 ENVIRONMENT QUIRE_CUDA_LIBRARY=)
endfunction()

# quire_gpu_test(<name> SOURCES ... DEPS ...): tests that skip themselves where there is no GPU.
function(quire_gpu_test name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS" ${ARGN})
  quire_test_binary(${name} SOURCES ${ARG_SOURCES} DEPS ${ARG_DEPS})
  gtest_discover_tests(${name} DISCOVERY_TIMEOUT 60
                       PROPERTIES TIMEOUT 600 LABELS gpu)
endfunction()

# quire_test_module(<test> <name> <code>): <name>.so of one piece of code, for a test that loads it, in the
# folder that the test knows as QUIRE_TEST_MODULES.
function(quire_test_module test name code)
  set(dir ${CMAKE_CURRENT_BINARY_DIR}/${test}_modules)
  file(CONFIGURE OUTPUT ${dir}/${name}.cc CONTENT "${code}\n" @ONLY)
  add_library(${test}_${name} MODULE ${dir}/${name}.cc)
  set_target_properties(${test}_${name} PROPERTIES OUTPUT_NAME ${name} PREFIX ""
                        LIBRARY_OUTPUT_DIRECTORY ${dir})
  add_dependencies(${test} ${test}_${name})
  get_target_property(definitions ${test} COMPILE_DEFINITIONS)
  if(NOT definitions MATCHES QUIRE_TEST_MODULES)
    target_compile_definitions(${test} PRIVATE QUIRE_TEST_MODULES="${dir}")
  endif()
endfunction()

function(quire_test_binary name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE ${ARG_DEPS} quire_options GTest::gtest GTest::gmock GTest::gtest_main)
  # Half of the time that a test takes to compile goes into optimising GoogleTest's templates, and most
  # tests run as long without; these loop for seconds in code of their own.
  if(NOT name MATCHES "^(cuda|engine|engine_cuda|golden|ops|runner|scheduler|tokenizer)_test$")
    target_compile_options(${name} PRIVATE -O0)
  endif()
  target_compile_definitions(${name} PRIVATE QUIRE_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
endfunction()
