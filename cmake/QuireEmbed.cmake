# The web page's files and the JavaScript libraries it takes from Debian packages, packed into one file
# that the library quire_web holds (.incbin: nothing for the compiler to parse).

# quire_find_web_library(<variable> <package> <path>...): the first path that exists. Distributions
# place the same file differently.
function(quire_find_web_library variable package)
  foreach(path ${ARGN})
    if(EXISTS ${path})
      set(${variable} ${path} PARENT_SCOPE)
      return()
    endif()
  endforeach()
  list(JOIN ARGN ", " tried)
  message(FATAL_ERROR "The web page needs the package ${package}, and none of these files is there: "
                      "${tried}. Run scripts/setup.sh, or install ${package}.")
endfunction()

# quire_embed_page(<target> <folder>): adds <folder> and the libraries to the target.
function(quire_embed_page target folder)
  find_package(Python3 REQUIRED COMPONENTS Interpreter)
  set(js /usr/share/javascript)
  set(node /usr/share/nodejs)
  quire_find_web_library(marked libjs-marked ${js}/marked/marked.min.js
                         ${js}/marked/marked.umd.min.js ${node}/marked/marked.min.js)
  quire_find_web_library(purify node-dompurify ${node}/dompurify/dist/purify.min.js
                         ${js}/dompurify/purify.min.js)
  quire_find_web_library(highlight libjs-highlight.js ${js}/highlight.js/highlight.min.js
                         ${js}/highlight/highlight.min.js)
  quire_find_web_library(chart libjs-chart.js ${js}/chart.js/chart.min.js
                         ${js}/chart.js/Chart.min.js ${js}/chart.js/chart.umd.js)
  set(copyrights)
  foreach(package libjs-marked node-dompurify libjs-highlight.js libjs-chart.js)
    quire_find_web_library(copyright ${package} /usr/share/doc/${package}/copyright)
    list(APPEND copyrights --copyright ${package}=${copyright})
  endforeach()

  set(script ${PROJECT_SOURCE_DIR}/cmake/embed_page.py)
  set(generated ${CMAKE_CURRENT_BINARY_DIR}/web)
  file(GLOB page CONFIGURE_DEPENDS ${folder}/*)
  add_custom_command(
    OUTPUT ${generated}/page_data.cc ${generated}/page.bin
    COMMAND ${Python3_EXECUTABLE} -B ${script} --page ${folder} --out ${generated}
            --library marked.js=${marked} --library purify.js=${purify}
            --library highlight.js=${highlight} --library chart.js=${chart} ${copyrights}
    DEPENDS ${script} ${page} ${marked} ${purify} ${highlight} ${chart}
    COMMENT "Packing the web page" VERBATIM)
  target_sources(${target} PRIVATE ${generated}/page_data.cc)
  set_source_files_properties(${generated}/page_data.cc PROPERTIES
                              OBJECT_DEPENDS ${generated}/page.bin)
endfunction()
