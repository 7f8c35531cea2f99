#include "quire/chat_template.h"
#include "quire/chat_input.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "base/temporary_folder_test_util.h"
#include "quire/error.h"

namespace quire {
namespace {

using nlohmann::ordered_json;
using testing::HasSubstr;

ChatInput chat(std::string_view messages = R"([{"role": "user", "content": "hi"}])") {
  ChatInput input;
  input.messages = ordered_json::parse(messages);
  return input;
}

std::string render(std::string_view source, const ChatInput& input = chat()) {
  return ChatTemplate(source).render(input);
}

template <typename Action>
std::string error_of(const Action& action) {
  try {
    action();
  } catch (const Error& e) {
    return e.what();
  }
  return "(no error)";
}

std::string render_error(std::string_view source, const ChatInput& input = chat()) {
  return error_of([&] { render(source, input); });
}

TEST(ChatTemplate, PlainMessagesBecomeJson) {
  ChatInput input;
  input.messages = messages_to_json({{"system", "s"}, {"user", "u"}});
  EXPECT_EQ(render("{% for m in messages %}{{ m.role }}={{ m.content }};{% endfor %}", input),
            "system=s;user=u;");
}

TEST(ChatTemplate, KeepsTheOrderOfKeys) {
  ChatInput input = chat();
  input.tools = ordered_json::parse(R"([{"z": 1, "a": {"y": null, "b": "é"}}])");
  EXPECT_EQ(render("{{ tools[0] | tojson }}", input), R"({"z": 1, "a": {"y": null, "b": "é"}})");
}

TEST(ChatTemplate, SpecialTokensAreVariablesThatKwargsOverride) {
  const ChatTemplate bos("{{ bos_token }}", {{"bos_token", "<s>"}});
  ChatInput input = chat();
  EXPECT_EQ(bos.render(input), "<s>");
  input.template_kwargs["bos_token"] = "<other>";
  EXPECT_EQ(bos.render(input), "<other>");
}

TEST(ChatTemplate, ErrorsOfMessagesNameIndexAndField) {
  EXPECT_THAT(render_error("x", chat("[]")), HasSubstr("at least one message"));
  EXPECT_THAT(render_error("x", chat("{}")), HasSubstr("must be an array"));
  EXPECT_THAT(render_error("x", chat(R"([{"role": "user"}, 5])")),
              HasSubstr("messages[1] must be an object"));
  EXPECT_THAT(render_error("x", chat(R"([{"content": "a"}])")),
              HasSubstr("messages[0] lacks the field \"role\""));
  EXPECT_THAT(render_error("x", chat(R"([{"role": 1}])")),
              HasSubstr("messages[0].role must be a string"));
  EXPECT_THAT(render_error("x", chat(R"([{"role": "user", "content": 1}])")),
              HasSubstr("messages[0].content"));
}

TEST(ChatTemplate, AnIntegerThatIsTooLargeIsAFloat) {
  EXPECT_EQ(render("{{ messages[0].n }} {{ messages[1].n }}",
                   chat(R"([{"role": "user", "n": 9223372036854775807},
                            {"role": "user", "n": 18446744073709551615}])")),
            "9223372036854775807 1.8446744073709552e+19");
}

TEST(ChatTemplate, RefusesInvalidUtf8EverywhereItComesIn) {
  ChatInput input;
  input.messages = messages_to_json({{"user", "a\xff"}});
  EXPECT_THAT(render_error("x", input),
              HasSubstr("messages[0].content is not valid UTF-8 at byte 1"));
  EXPECT_THAT(error_of([] { ChatTemplate("ab\xc3"); }), HasSubstr("not valid UTF-8 at byte 2"));
}

TEST(ChatTemplate, RefusesKwargsThatAreInternals) {
  for (const char* name : {"messages", "tools", "functions", "add_generation_prompt"}) {
    ChatInput input = chat();
    input.template_kwargs[name] = 1;
    EXPECT_THAT(render_error("x", input), HasSubstr(std::string("\"") + name + "\"")) << name;
  }
  ChatInput input = chat();
  input.template_kwargs = ordered_json::array();
  EXPECT_THAT(render_error("x", input), HasSubstr("must be an object"));
}

TEST(ChatTemplate, RefusesToolsThatAreNoObjects) {
  ChatInput input = chat();
  input.tools = ordered_json::parse("[{}, 3]");
  EXPECT_THAT(render_error("x", input), HasSubstr("tools[1] must be an object"));
}

TEST(ChatTemplate, RefusesJsonNestedWithoutEnd) {
  ordered_json deep = 1;
  for (int i = 0; i < 1000; ++i) deep = ordered_json::array({std::move(deep)});
  ChatInput input = chat();
  input.template_kwargs["deep"] = std::move(deep);
  EXPECT_THAT(render_error("x", input), HasSubstr("nested more than"));
}

TEST(ChatTemplate, ErrorsNameTheLine) {
  EXPECT_THAT(render_error("a\n{% foo %}"), HasSubstr("line 2: unknown tag 'foo'"));
  EXPECT_THAT(render_error("a\n\n{{ 1 | foo }}"), HasSubstr("line 3: there is no filter 'foo'"));
  EXPECT_THAT(render_error("{{ 1 is foo }}"), HasSubstr("line 1: there is no test 'foo'"));
  EXPECT_THAT(render_error("{# a\nb #}\n{{ x.y }}"), HasSubstr("line 3: 'x' is undefined"));
  EXPECT_THAT(render_error("{% if 1 %}\n\n"),
              HasSubstr("'elif' or 'else' or 'endif' was expected"));
  EXPECT_THAT(render_error("{{ messages.append(1) }}"),
              HasSubstr("changes it, which templates must not do"));
}

TEST(ChatTemplate, WhatTheTemplateRefusesIsTheMessage) {
  EXPECT_THAT(render_error("{{ raise_exception('No ' ~ messages[0].role) }}"),
              HasSubstr("No user"));
}

TEST(ChatTemplate, UnknownFiltersCountOnlyWhereReachedInsideIf) {
  EXPECT_EQ(render("{% if false %}{{ 1 | foo }}{% endif %}ok"), "ok");
  EXPECT_THAT(render_error("{% if true %}{{ 1 | foo }}{% endif %}"), HasSubstr("no filter 'foo'"));
}

// Each of these would take the machine's memory, stack or hours; the Error names the limit.
TEST(ChatTemplateLimits, StopHostileTemplates) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
       "max_steps"},
      {"{% for a in range(99999) %}{% for b in range(99) %}xxxxxxxxxxxxxxxxxxxxxx{% endfor %}{% "
       "endfor %}",
       "max_output_bytes"},
      {"{{ 'x' * 1000000000000 }}", "max_string_bytes"},
      {"{{ [0] * 1000000000000 }}", "max_list_items"},
      {"{% set ns = namespace(s='x') %}{% for i in range(99) %}{% set ns.s = ns.s ~ ns.s %}{% "
       "endfor %}",
       "max_string_bytes"},
      {"{% set ns = namespace(l=['x' * 10000000]) %}{% for i in range(99) %}"
       "{% set ns.l = ns.l + ['x' * 10000000] %}{% endfor %}",
       "max_memory_bytes"},
      {"{% set ns = namespace(l=[]) %}{% for i in range(99999) %}{% set ns.l = [ns.l] %}{% endfor "
       "%}",
       "max_depth"},
      {"{% set ns = namespace(f=1) %}{% for i in range(99999) %}{% set ns.f = cycler(ns.f).next %}"
       "{% endfor %}",
       "max_depth"},
      {"{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "max_depth"},
      {"{% for x in [[1]] recursive %}{{ loop([x]) }}{% endfor %}", "max_depth"},
      {"{% set ns = namespace() %}{% set ns.a = [ns] %}{{ ns }}", "max_depth"},
      {"{{ 'a' | map(*(['map'] * 2000)) | list }}", "max_depth"},
      {"{{ " + std::string(50'000, '[') + std::string(50'000, ']') + " }}", "max_nesting"},
      {"{{ " + std::string(50'000, '-') + "1 }}", "max_nesting"},
      {"{% if 1 %}{% if 1 %}" +
           [] {
             std::string ifs;
             for (int i = 0; i < 1000; ++i) ifs += "{% if 1 %}";
             return ifs;
           }(),
       "max_nesting"},
      {"{{ 1" +
           [] {
             std::string sum;
             for (int i = 0; i < 1000; ++i) sum += " + 1";
             return sum;
           }() +
           " }}",
       "max_nesting"},
      {"{{ messages | tojson(indent=100000000) }}", "max_string_bytes"},
      {"{{ 'x'.center(99999999999) }}", "max_string_bytes"},
      {"{{ 'x' | indent(99999999999, true) }}", "max_string_bytes"},
      {"{{ ('x' * 100000).replace('', 'y' * 100000) }}", "max_string_bytes"},
      {"{{ (['x' * 100000] * 100000) | join }}", "max_string_bytes"},
      {"{{ '%999999999d' % 1 }}", "width"},
      {"{{ '{:999999999}'.format(1) }}", "width"},
      {"{% set ns = namespace(t=()) %}{% for i in range(99) %}{% set ns.t = (ns.t, ns.t) %}{% "
       "endfor %}"
       "{{ {ns.t: 1} }}",
       "max_steps"},
      {"{% set s = 'x' * 9000000 %}{% for i in range(99999) %}{{ {s: 1, 'y': 2}[s] }}{% endfor %}",
       "max_steps"},
      {"{% set s = 'x' * 9000000 %}{{ s.startswith((s[1:] ~ 'y',) * 99999) }}", "max_steps"},
      {"{{ ('a,' * 2000000).split(',') }}", "max_list_items"},
      {"{{ ('a ' * 2000000).rsplit() }}", "max_list_items"},
      {"{{ ('\\n' * 2000000).splitlines() }}", "max_list_items"},
      {"{{ range(999999999) | list }}", "100000"},
      {"{{ 9 ** 9999999 }}", "64-bit"},
      {"{{ 9223372036854775807 + 1 }}", "64-bit"},
      {"{{ -9223372036854775807 - 2 }}", "64-bit"},
      {"{{ 99999999999999999999 }}", "64 bits"},
      {std::string(2 << 20, 'x'), "max_source_bytes"},
  };
  for (const auto& [source, limit] : cases) {
    EXPECT_THAT(render_error(source), HasSubstr(limit)) << source.substr(0, 100);
  }
}

// Searches that are quadratic where they are written without care.
TEST(ChatTemplateLimits, SearchingLongTextsIsLinear) {
  const std::string set = "{% set text = 'a' * 4000000 %}{% set wanted = 'a' * 2000000 ~ 'b' %}";
  EXPECT_EQ(
      render(set +
             "{{ wanted in text }}{{ text.find(wanted) }}{{ text.rfind('b' ~ wanted) }}"
             "{{ text.count(wanted) }}{{ text.split(wanted) | length }}"
             "{{ text.rsplit('b' ~ wanted) | length }}{{ text.replace(wanted, '') == text }}"),
      "False-1-1011True");
}

TEST(ChatTemplateLimits, ExtremeCountsAreFine) {
  EXPECT_EQ(render("{% set low = -9223372036854775807 - 1 %}{{ 'aba'.replace('a', 'c', low) }}"
                   "{{ 'a,b'.split(',', low) }}{{ 'a b'.rsplit(none, low) }}{{ 'abc'[low:] }}"
                   "{{ 'abc'[::low] }}{{ 'a'.center(low) }}{{ 'abc'.find('c', low, low) }}{{ 5 | "
                   "round(low) }}"),
            "cbc['a', 'b']['a', 'b']abcca-10");
}

TEST(ChatTemplateLimits, ValuesThatHoldThemselvesAreFreed) {
  EXPECT_EQ(render("{% set ns = namespace() %}{% set ns.a = ns %}{% set ns.l = [ns] %}"
                   "{% macro m() %}{{ ns }}{% endmacro %}{% set ns.m = m %}"
                   "{% for i in [1] %}{% set ns.loop = loop %}{% endfor %}{{ ns.loop.last }}"),
            "True");
}

TEST(ChatTemplate, RendersFromManyThreads) {
  const ChatTemplate shared(
      "{% for m in messages %}{{ m.role ~ 'x' * 3 }}{% endfor %}{{ 'a' 'b' }}");
  std::vector<std::thread> threads;
  std::vector<std::string> texts(4);
  threads.reserve(texts.size());
  for (std::string& text : texts) {
    threads.emplace_back([&shared, &text] {
      for (int i = 0; i < 200; ++i) text = shared.render(chat());
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& text : texts) EXPECT_EQ(text, "userxxxab");
}

class ChatFolder : public testing::Test {
 protected:
  void write(const std::string& name, const std::string& text) {
    std::filesystem::create_directories((folder_ / name).parent_path());
    std::ofstream(folder_ / name) << text;
  }
  std::string load_error() {
    return error_of([&] { ChatTemplate::from_folder(folder_); });
  }

  const TemporaryFolder temporary_;
  const std::filesystem::path folder_ = temporary_.path();
};

TEST_F(ChatFolder, ReadsTemplateAndTokensFromTheConfig) {
  write("tokenizer_config.json",
        R"({"chat_template": "{{ bos_token }}{{ eos_token }}{{ pad_token }}|",
            "bos_token": "<s>", "eos_token": {"content": "</s>", "lstrip": false}, "pad_token": null})");
  EXPECT_TRUE(ChatTemplate::exists_in(folder_));
  EXPECT_EQ(ChatTemplate::from_folder(folder_).render(chat()), "<s></s>|");
}

TEST_F(ChatFolder, TheFileOfItsOwnComesFirst) {
  write("tokenizer_config.json", R"({"chat_template": "config", "bos_token": "<s>"})");
  write("chat_template.jinja", "file {{ bos_token }}");
  const ChatTemplate loaded = ChatTemplate::from_folder(folder_);
  EXPECT_EQ(loaded.render(chat()), "file <s>");
  EXPECT_EQ(loaded.source(), "file {{ bos_token }}");
}

TEST_F(ChatFolder, ToolUseServesChatsWithTools) {
  write("tokenizer_config.json",
        R"({"chat_template": [{"name": "default", "template": "plain"},
                              {"name": "tool_use", "template": "tools"}]})");
  const ChatTemplate from_config = ChatTemplate::from_folder(folder_);
  write("chat_template.jinja", "plain file");
  write("additional_chat_templates/tool_use.jinja", "tools file");
  const ChatTemplate from_files = ChatTemplate::from_folder(folder_);
  ChatInput input = chat();
  EXPECT_EQ(from_config.render(input), "plain");
  EXPECT_EQ(from_files.render(input), "plain file");
  input.tools = ordered_json::array();
  EXPECT_EQ(from_config.render(input), "tools");
  EXPECT_EQ(from_files.render(input), "tools file");
}

TEST_F(ChatFolder, ErrorsNameFileAndField) {
  EXPECT_FALSE(ChatTemplate::exists_in(folder_));
  EXPECT_THAT(load_error(), HasSubstr("has no chat template"));
  write("tokenizer_config.json", "{");
  EXPECT_THAT(load_error(), HasSubstr("tokenizer_config.json is not valid JSON"));
  write("tokenizer_config.json", "[]");
  EXPECT_THAT(load_error(), HasSubstr("must hold a JSON object"));
  write("tokenizer_config.json", R"({"chat_template": 5})");
  EXPECT_THAT(load_error(), HasSubstr("\"chat_template\" must be a string or a list"));
  write("tokenizer_config.json", R"({"chat_template": [{"name": "a"}]})");
  EXPECT_THAT(load_error(), HasSubstr("\"chat_template\"[0] must be an object"));
  write("tokenizer_config.json", R"({"chat_template": [{"name": "a", "template": "b"}]})");
  EXPECT_THAT(load_error(), HasSubstr("none of the name \"default\""));
  write("tokenizer_config.json", R"({"chat_template": "x", "bos_token": 5})");
  EXPECT_THAT(load_error(), HasSubstr("\"bos_token\" must be a string"));
  write("tokenizer_config.json", R"({"chat_template": "{{"})");
  EXPECT_THAT(load_error(), HasSubstr("line 1"));
  EXPECT_THAT(error_of([&] { ChatTemplate::from_folder(folder_ / "none"); }),
              HasSubstr("is no folder"));
}

}  // namespace
}  // namespace quire
