#include "grammar/format.h"

#include <fmt/format.h>

#include "grammar/regex.h"

namespace quire::grammar {
namespace {

// Up to 63 letters, digits and hyphens that begin and end with no hyphen. Hyphens in both the third
// and the fourth place say that the name is encoded (IDNA), which no regular expression can check.
constexpr std::string_view kLabel =
    "[a-zA-Z0-9](?:[a-zA-Z0-9]|[a-zA-Z0-9-]{1,2}[a-zA-Z0-9]|"
    "[a-zA-Z0-9-](?:[a-zA-Z0-9][a-zA-Z0-9-]|-[a-zA-Z0-9])[a-zA-Z0-9-]{0,58}[a-zA-Z0-9])?";

constexpr std::string_view kByte = "(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])";

std::string ipv4() {
  return fmt::format("{0}\\.{0}\\.{0}\\.{0}", kByte);
}

// RFC 4291, 2.2.
std::string ipv6() {
  const std::string group = "[0-9a-fA-F]{1,4}";
  const std::string last = fmt::format("(?:{0}:{0}|{1})", group, ipv4());  // 32 bits
  std::string out = fmt::format("(?:(?:{0}:){{6}}{1}", group, last);
  out += fmt::format("|::(?:{0}:){{5}}{1}", group, last);
  for (int before = 1; before <= 7; ++before) {
    // Up to `before` groups, "::", and so many that it stands for one group at least.
    const int after = 7 - before;
    out += fmt::format("|(?:{0}(?::{0}){{0,{1}}})?::", group, before - 1);
    if (after >= 2) {
      out += fmt::format("(?:{0}:){{{1}}}{2}", group, after - 2, last);
    } else if (after == 1) {
      out += group;
    }
  }
  return out + ")";
}

std::string domain() {
  return fmt::format("{0}(?:\\.{0})*", kLabel);
}

std::string email(std::string_view other_characters) {
  const std::string atom = fmt::format("[a-zA-Z0-9!#$%&'*+/=?^_`{{|}}~{}-]+", other_characters);
  const std::string quoted = fmt::format(R"("(?:[ !#-\[\]-~{}]|\\[ -~])*")", other_characters);
  std::string label = domain();
  if (!other_characters.empty()) {
    const std::string word = fmt::format("[a-zA-Z0-9{}]", other_characters);
    const std::string inner = fmt::format("[a-zA-Z0-9{}-]", other_characters);
    label = fmt::format("{0}(?:{1}{{0,61}}{0})?(?:\\.{0}(?:{1}{{0,61}}{0})?)*", word, inner);
  }
  return fmt::format(R"((?:{0}(?:\.{0})*|{1})@(?:{2}|\[(?:{3}|IPv6:{4})\]))", atom, quoted, label,
                     ipv4(), ipv6());
}

// RFC 3339, 5.6, without the year 0000, which few programs take for a date.
std::string full_date() {
  return "(?:(?:[0-9]{3}[1-9]|[0-9]{2}[1-9]0|[0-9][1-9]00|[1-9]000)-(?:(?:0[13578]|1[02])-"
         "(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|"
         "02-(?:0[1-9]|1[0-9]|2[0-8]))|"
         "(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|"
         "(?:0[48]|[2468][048]|[13579][26])00)-02-29)";
}

// RFC 3339, 5.6. A leap second is the last of a day in UTC.
std::string full_time() {
  std::string out =
      "(?:(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\\.[0-9]+)?(?:[zZ]|[+-](?:[01][0-9]|2[0-3]):"
      "[0-"
      "5][0-9])|23:59:60(?:\\.[0-9]+)?[zZ]";
  for (int local = 14; local < 60; local += 15) {
    // Offsets are of whole quarters of an hour.
    const int east = (local + 1) % 60;
    const int west = 59 - local;
    for (int hour = 0; hour < 24; ++hour) {
      const int hours_east = east == 0 ? (hour + 1) % 24 : hour;
      const int hours_west = 23 - hour;
      out += fmt::format("|{:02}:{:02}:60(?:\\.[0-9]+)?(?:\\+{:02}:{:02}|-{:02}:{:02})", hour,
                         local, hours_east, east, hours_west, west);
    }
  }
  return out + ")";
}

// ISO 8601, as RFC 3339's appendix A has it.
std::string duration() {
  return "P(?:[0-9]+W|(?:[0-9]+Y(?:[0-9]+M(?:[0-9]+D)?)?|[0-9]+M(?:[0-9]+D)?|[0-9]+D)(?:T(?:[0-9]+"
         "H(?:["
         "0-9]+M(?:[0-9]+S)?)?|[0-9]+M(?:[0-9]+S)?|[0-9]+S))?|T(?:[0-9]+H(?:[0-9]+M(?:[0-9]+S)?)?|["
         "0-"
         "9]+M(?:[0-9]+S)?|[0-9]+S))";
}

enum class UriKind { kAbsolute, kAny };

// RFC 3986 and, with further characters, RFC 3987.
std::string uri(UriKind kind, std::string_view ucs, std::string_view private_use) {
  const std::string unreserved = fmt::format("a-zA-Z0-9._~{}-", ucs);
  const std::string delimiters = "!$&'()*+,;=";
  const std::string escape = "%[0-9a-fA-F]{2}";
  const std::string pchar = fmt::format("(?:[:@{}{}]|{})", delimiters, unreserved, escape);
  const std::string no_colon = fmt::format("(?:[@{}{}]|{})", delimiters, unreserved, escape);
  const std::string name = fmt::format("(?:[{}{}]|{})*", delimiters, unreserved, escape);
  const std::string user = fmt::format("(?:[:{}{}]|{})*", delimiters, unreserved, escape);
  const std::string future = fmt::format("v[0-9a-fA-F]+\\.[:{}a-zA-Z0-9._~-]+", delimiters);
  const std::string authority =
      fmt::format("(?:{}@)?(?:\\[(?:{}|{})\\]|{})(?::[0-9]*)?", user, ipv6(), future, name);
  const std::string after_authority = fmt::format("//{}(?:/{}*)*", authority, pchar);
  const std::string absolute = fmt::format("/(?:{0}+(?:/{0}*)*)?", pchar);
  const std::string rootless = fmt::format("{0}+(?:/{0}*)*", pchar);
  const std::string relative = fmt::format("{}+(?:/{}*)*", no_colon, pchar);
  const std::string query =
      fmt::format("(?:\\?(?:{0}|[/?{1}])*)?(?:#(?:{0}|[/?])*)?", pchar, private_use);
  std::string with_scheme = fmt::format("[a-zA-Z][a-zA-Z0-9+.-]*:(?:{}|{}|{})?{}", after_authority,
                                        absolute, rootless, query);
  if (kind == UriKind::kAbsolute) return with_scheme;
  return fmt::format("(?:{}|(?:{}|{}|{})?{})", with_scheme, after_authority, absolute, relative,
                     query);
}

constexpr std::string_view kUcs =
    "\\u00A0-\\uD7FF\\uF900-\\uFDCF\\uFDF0-\\uFFEF\\u{10000}-\\u{1FFFD}\\u{20000}-\\u{2FFFD}"
    "\\u{30000}-\\u{3FFFD}\\u{40000}-\\u{4FFFD}\\u{50000}-\\u{5FFFD}\\u{60000}-\\u{6FFFD}"
    "\\u{70000}-\\u{7FFFD}\\u{80000}-\\u{8FFFD}\\u{90000}-\\u{9FFFD}\\u{A0000}-\\u{AFFFD}"
    "\\u{B0000}-\\u{BFFFD}\\u{C0000}-\\u{CFFFD}\\u{D0000}-\\u{DFFFD}\\u{E1000}-\\u{EFFFD}";
constexpr std::string_view kPrivateUse =
    "\\uE000-\\uF8FF\\u{F0000}-\\u{FFFFD}\\u{100000}-\\u{10FFFD}";

// RFC 6570.
std::string uri_template() {
  const std::string escape = "%[0-9a-fA-F]{2}";
  const std::string literal =
      fmt::format("(?:[!#$&()*+,./0-;=?-\\[\\]_a-z~{}{}-]|{})", kUcs, kPrivateUse, escape);
  const std::string name = fmt::format("(?:[a-zA-Z0-9_]|{0})(?:\\.?(?:[a-zA-Z0-9_]|{0}))*", escape);
  const std::string variable = fmt::format("{}(?::[1-9][0-9]{{0,3}}|\\*)?", name);
  return fmt::format("(?:{0}|\\{{[+#./;?&=,!@|]?{1}(?:,{1})*\\}})*", literal, variable);
}

constexpr std::string_view kPointer = "(?:/(?:[^/~]|~[01])*)*";

// RFC 5321, 4.5.3.1: a path has at most 256 octets, "<" and ">" among them.
constexpr uint64_t kMaxAddressLength = 254;
constexpr int kMaxLocalBytes = 64;

Format enforced(std::string pattern, uint64_t max_length = UINT64_MAX) {
  return {Format::Kind::kEnforced, std::move(pattern), max_length};
}

Format address(std::string_view other_characters) {
  return {Format::Kind::kEnforced, email(other_characters), kMaxAddressLength, true};
}

// Texts with at most kMaxLocalBytes bytes before an @ outside of quotes. Counting them in the
// pattern would multiply its states, those of the domain too.
DfaPtr limited_local_part(Budget& budget) {
  enum ByteClass : uint8_t {
    kAt,
    kQuote,
    kBackslash,
    kAscii,
    kLeading,
    kContinuation,
    kNumClasses
  };
  // The start, kMaxLocalBytes states of each place, by the bytes so far, and the domain.
  enum Place { kPlain, kQuoted, kEscaped, kNumPlaces };
  constexpr int kDomain = 1 + kNumPlaces * kMaxLocalBytes;
  const auto state_of = [](Place place, int bytes) {
    return bytes > kMaxLocalBytes ? Dfa::kDead : 1 + place * kMaxLocalBytes + bytes - 1;
  };
  Dfa::Table table;
  for (size_t byte = 0; byte < 256; ++byte) {
    table.classes[byte] = byte < 0x80 ? kAscii : byte < 0xC0 ? kContinuation : kLeading;
  }
  table.classes['@'] = kAt;
  table.classes['"'] = kQuote;
  table.classes['\\'] = kBackslash;
  table.num_classes = kNumClasses;
  table.accepting.assign(kDomain + 1, false);
  table.accepting[kDomain] = true;
  table.next.assign(table.accepting.size() * kNumClasses, kDomain);
  const auto set = [&](int state, ByteClass byte_class, int next) {
    table.next[static_cast<size_t>(state * kNumClasses + byte_class)] = next;
  };
  const auto set_all = [&](int state, int next) {
    for (int i = 0; i < kNumClasses; ++i) set(state, static_cast<ByteClass>(i), next);
  };
  set_all(0, state_of(kPlain, 1));
  set(0, kQuote, state_of(kQuoted, 1));
  set(0, kAt, Dfa::kDead);
  for (int bytes = 1; bytes <= kMaxLocalBytes; ++bytes) {
    set_all(state_of(kPlain, bytes), state_of(kPlain, bytes + 1));
    set(state_of(kPlain, bytes), kAt, kDomain);
    set_all(state_of(kQuoted, bytes), state_of(kQuoted, bytes + 1));
    set(state_of(kQuoted, bytes), kQuote, state_of(kPlain, bytes + 1));
    set(state_of(kQuoted, bytes), kBackslash, state_of(kEscaped, bytes + 1));
    set_all(state_of(kEscaped, bytes), state_of(kQuoted, bytes + 1));
  }
  return std::make_shared<Dfa>(std::move(table), budget);
}

}  // namespace

Format find_format(std::string_view name) {
  if (name == "date-time") return enforced(full_date() + "[tT]" + full_time());
  if (name == "date") return enforced(full_date());
  if (name == "time") return enforced(full_time());
  if (name == "duration") return enforced(duration());
  if (name == "email") return address("");
  if (name == "idn-email") return address(kUcs);
  if (name == "hostname") return enforced(domain(), 253);
  if (name == "ipv4") return enforced(ipv4());
  if (name == "ipv6") return enforced(ipv6());
  if (name == "uuid") {
    return enforced("[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}");
  }
  if (name == "uri") return enforced(uri(UriKind::kAbsolute, "", ""));
  if (name == "uri-reference") return enforced(uri(UriKind::kAny, "", ""));
  if (name == "iri") return enforced(uri(UriKind::kAbsolute, kUcs, kPrivateUse));
  if (name == "iri-reference") return enforced(uri(UriKind::kAny, kUcs, kPrivateUse));
  if (name == "uri-template") return enforced(uri_template());
  if (name == "json-pointer") return enforced(std::string(kPointer));
  if (name == "relative-json-pointer") {
    return enforced(fmt::format("(?:0|[1-9][0-9]*)(?:#|{})", kPointer));
  }
  if (name == "regex" || name == "idn-hostname") return {Format::Kind::kRefused};
  return {};
}

DfaPtr compile_format(const Format& format, Budget& budget) {
  DfaPtr texts = compile_regex_dfa(format.pattern, RegexMatch::kWhole, budget);
  if (!format.is_address) return texts;
  return combine(*texts, *limited_local_part(budget), Combine::kBoth, budget);
}

}  // namespace quire::grammar
