#include "grammar/uri.h"

#include <algorithm>
#include <vector>

#include "base/hex_digit.h"
#include "grammar/visible_text.h"

namespace quire::grammar {
namespace {

struct UriParts {
  std::string_view scheme;     // with its colon
  std::string_view authority;  // with its slashes
  std::string_view path;
  std::string_view query;  // with its ?
};

UriParts split_uri(std::string_view uri) {
  UriParts parts;
  const size_t colon = uri.find_first_of(":/?");
  if (colon != std::string_view::npos && uri[colon] == ':') {
    parts.scheme = uri.substr(0, colon + 1);
    uri.remove_prefix(colon + 1);
  }
  if (uri.starts_with("//")) {
    const size_t end = std::min(uri.find_first_of("/?", 2), uri.size());
    parts.authority = uri.substr(0, end);
    uri.remove_prefix(end);
  }
  const size_t query = std::min(uri.find('?'), uri.size());
  parts.path = uri.substr(0, query);
  parts.query = uri.substr(query);
  return parts;
}

// RFC 3986, 5.2.4.
std::string without_dots(std::string_view path) {
  std::vector<std::string_view> segments;
  size_t begin = 0;
  while (true) {
    const size_t end = std::min(path.find('/', begin), path.size());
    const std::string_view segment = path.substr(begin, end - begin);
    const bool is_last = end == path.size();
    if (segment == "..") {
      if (segments.size() > 1) segments.pop_back();
      if (is_last) segments.push_back("");
    } else if (segment == ".") {
      if (is_last) segments.push_back("");
    } else {
      segments.push_back(segment);
    }
    if (is_last) break;
    begin = end + 1;
  }
  std::string out;
  for (size_t i = 0; i < segments.size(); ++i) {
    if (i > 0) out += '/';
    out += segments[i];
  }
  return out;
}

std::string percent_decoded(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%' && i + 2 < text.size() && hex_digit(text[i + 1]) >= 0 &&
        hex_digit(text[i + 2]) >= 0) {
      out += static_cast<char>(hex_digit(text[i + 1]) * 16 + hex_digit(text[i + 2]));
      i += 2;
    } else {
      out += text[i];
    }
  }
  return out;
}

}  // namespace

UriReference resolve_reference(std::string_view base, std::string_view reference) {
  UriReference out;
  const size_t hash = std::min(reference.find('#'), reference.size());
  if (hash < reference.size()) out.fragment = percent_decoded(reference.substr(hash + 1));
  reference = reference.substr(0, hash);
  if (reference.empty()) {
    out.uri = base;
    return out;
  }
  const UriParts to = split_uri(reference);
  if (!to.scheme.empty()) {
    out.uri = reference;
    return out;
  }
  const UriParts from = split_uri(base);
  out.uri = from.scheme;
  if (!to.authority.empty()) {
    out.uri += reference;
    return out;
  }
  out.uri += from.authority;
  if (to.path.empty()) {
    out.uri += from.path;
  } else if (to.path.starts_with('/')) {
    out.uri += without_dots(to.path);
  } else {
    const size_t slash = from.path.rfind('/');
    std::string path(from.path.substr(0, slash == std::string_view::npos ? 0 : slash + 1));
    if (path.empty() && !from.authority.empty()) path = "/";
    out.uri += without_dots(path + std::string(to.path));
  }
  out.uri += to.query;
  return out;
}

std::string pointer_token(std::string_view name) {
  std::string out;
  for (const char c : visible_text(name)) {
    if (c == '~') {
      out += "~0";
    } else if (c == '/') {
      out += "~1";
    } else {
      out += c;
    }
  }
  return out;
}

}  // namespace quire::grammar
