# Helpers that turn a folder into targets. Sources are found by name, so a new file or test is built
# as soon as it exists and none can be forgotten:
#   *_test.cc    one test binary for the folder
#   *_avx2.cc, *_avxvnni.cc, *_avx512.cc, *_avx512vnni.cc, *_amx.cc    compiled for that instruction set; everything else for plain x86-64
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
                       # GCC takes a source that a unity build includes for a header, whose unnamed
                       # namespaces would differ from file to file.
                       $<$<AND:$<CXX_COMPILER_ID:GNU>,$<BOOL:${CMAKE_UNITY_BUILD}>>:-Wno-subobject-linkage>
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
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)

# quire_included_folders(<variable> <source>...): the folders of src/ whose headers the sources include; a
# public header stands for the folder that implements it.
function(quire_included_folders variable)
  set(folders)
  foreach(source ${ARGN})
    file(STRINGS ${source} includes REGEX "^#include \"")
    foreach(include ${includes})
      if(include MATCHES "\"quire/(chat|tokenizer)")
        list(APPEND folders ${CMAKE_MATCH_1})
      elseif(include MATCHES "\"([a-z]+)/" AND NOT CMAKE_MATCH_1 STREQUAL quire)
        list(APPEND folders ${CMAKE_MATCH_1})
      endif()
    endforeach()
  endforeach()
  list(REMOVE_DUPLICATES folders)
  set(${variable} ${folders} PARENT_SCOPE)
endfunction()

# Folders whose coverage leads the fuzzers: those that they include, and base, whose json_text.cc is the first
# parser that three of them call. The others, with the kernels and the engine's tests, run faster and compile
# faster without.
set(QUIRE_FUZZED_FOLDERS)
if(QUIRE_BUILD_FUZZERS)
  file(GLOB fuzz_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/fuzz/*_fuzz.cc)
  quire_included_folders(QUIRE_FUZZED_FOLDERS ${fuzz_sources})
  list(APPEND QUIRE_FUZZED_FOLDERS base)
endif()

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
  if(folder IN_LIST QUIRE_FUZZED_FOLDERS)
    target_compile_options(${target} PRIVATE -fsanitize=fuzzer-no-link)
  endif()
  foreach(source ${sources})
    # Compiled together with others, an inline function of a header could reach the linker with instructions
    # that plain x86-64 has not.
    if(source MATCHES "_(avx2|avxvnni|avx512|avx512vnni|amx)\\.cc$")
      set_property(SOURCE ${source} PROPERTY SKIP_UNITY_BUILD_INCLUSION ON)
    endif()
    # The kernels take most of the time of a sanitized test of a model, and are few files.
    if(QUIRE_SANITIZE AND source MATCHES "_(cpu|avx2|avxvnni|avx512|avx512vnni|amx)\\.cc$")
      set_property(SOURCE ${source} APPEND PROPERTY COMPILE_OPTIONS -O2)
      if(QUIRE_BUILD_FUZZERS)
        set_property(SOURCE ${source} APPEND PROPERTY COMPILE_OPTIONS -fno-sanitize=fuzzer-no-link)
      endif()
    endif()
    # base/watched_memory.h says why, and how their races are found all the same.
    if(QUIRE_SANITIZE STREQUAL thread AND source MATCHES "/(group_)?linear_(cpu|avx2|avxvnni|avx512|avx512vnni|amx)\\.cc$")
      set_property(SOURCE ${source} APPEND PROPERTY COMPILE_OPTIONS -fno-sanitize=thread)
    endif()
    if(source MATCHES "_avx2\\.cc$")
      set_property(SOURCE ${source} APPEND PROPERTY COMPILE_OPTIONS -mavx2 -mfma -mf16c)
    elseif(source MATCHES "_avxvnni\\.cc$")
      set_property(SOURCE ${source} APPEND PROPERTY COMPILE_OPTIONS -mavx2 -mfma -mf16c -mavxvnni)
    elseif(source MATCHES "_(avx512|avx512vnni|amx)\\.cc$")
      set_property(SOURCE ${source} APPEND PROPERTY COMPILE_OPTIONS
        -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512vnni -mfma -mf16c)
      if(source MATCHES "_avx512\\.cc$")
        set_property(SOURCE ${source} APPEND PROPERTY COMPILE_OPTIONS -mavx512bf16)
      elseif(source MATCHES "_amx\\.cc$")
        set_property(SOURCE ${source} APPEND PROPERTY COMPILE_OPTIONS -mavx512bf16 -mamx-tile -mamx-bf16 -mamx-int8)
      endif()
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

# quire_test(<name> SOURCES ... DEPS ...): a GoogleTest binary whose tests ctest knows.
# Tests find data through QUIRE_SOURCE_DIR. They run on the CPU, on machines with a GPU too.
function(quire_test name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS" ${ARGN})
  quire_test_binary(${name} SOURCES ${ARG_SOURCES} DEPS ${ARG_DEPS})
  quire_add_tests(${name} ENVIRONMENT QUIRE_CUDA_LIBRARY=)
endfunction()

# quire_gpu_test(<name> SOURCES ... DEPS ...): tests that skip themselves where there is no GPU.
function(quire_gpu_test name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS" ${ARGN})
  quire_test_binary(${name} SOURCES ${ARG_SOURCES} DEPS ${ARG_DEPS})
  quire_add_tests(${name} LABELS gpu)
endfunction()

# quire_add_tests(<test binary> [PREFIX <of the names>] [FILTER <GoogleTest filter>] [LABELS <label>]
# [COST <number>] [ENVIRONMENT <variable>=<value>...]): makes its tests known to ctest, each by its name;
# those of higher COST start first. Under sanitizers, where a process takes long to start, they run in two
# processes, <prefix><binary>.0 and .1, whose output names the tests that failed. The engine's run in four, and
# those that take minutes before the others: else one process would be left at the end, and one core.
function(quire_add_tests name)
  cmake_parse_arguments(ARG "" "PREFIX;FILTER;LABELS;COST" "ENVIRONMENT" ${ARGN})
  if(NOT ARG_FILTER)
    set(ARG_FILTER *)
  endif()
  set(properties)
  if(ARG_LABELS)
    set(properties LABELS ${ARG_LABELS})
  endif()
  if(ARG_COST)
    list(APPEND properties COST ${ARG_COST})
  endif()
  if(QUIRE_SANITIZE)
    set(shards 2)
    if(name STREQUAL engine_test)
      set(shards 4)
    endif()
    if(name MATCHES "^(engine|grammar|low_memory|ops|scheduler)_test$")
      list(APPEND properties COST 60)
    endif()
    math(EXPR last_shard "${shards} - 1")
    foreach(shard RANGE ${last_shard})
      set(test ${ARG_PREFIX}${name}.${shard})
      add_test(NAME ${test} COMMAND ${name} --gtest_brief=1 "--gtest_filter=${ARG_FILTER}")
      set_tests_properties(${test} PROPERTIES TIMEOUT 1200 ${properties})
      set_property(TEST ${test} PROPERTY ENVIRONMENT
                   ${ARG_ENVIRONMENT} GTEST_TOTAL_SHARDS=${shards} GTEST_SHARD_INDEX=${shard})
    endforeach()
    return()
  endif()
  set(tests ${ARG_PREFIX}${name}_tests)
  gtest_discover_tests(${name} DISCOVERY_TIMEOUT 60 TEST_PREFIX "${ARG_PREFIX}" TEST_FILTER "${ARG_FILTER}"
                       TEST_LIST ${tests} PROPERTIES TIMEOUT 600 ${properties})
  if(ARG_ENVIRONMENT)
    # A property given above would end at its first semicolon.
    set(file ${CMAKE_CURRENT_BINARY_DIR}/${tests}_environment.cmake)
    file(GENERATE OUTPUT ${file} CONTENT
         "if(${tests})\n  set_tests_properties(\${${tests}} PROPERTIES ENVIRONMENT \"${ARG_ENVIRONMENT}\")\nendif()\n")
    set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES ${file})
  endif()
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
  if(name MATCHES "^(cuda|engine|engine_cuda|golden|ops|runner|scheduler|tokenizer)_test$")
    target_compile_options(${name} PRIVATE -O1)
  else()
    target_compile_options(${name} PRIVATE -O0)
  endif()
  target_compile_definitions(${name} PRIVATE QUIRE_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  if(QUIRE_SANITIZE)
    target_compile_definitions(${name} PRIVATE QUIRE_SANITIZED)  # base/sanitized_test_util.h
  endif()
endfunction()
