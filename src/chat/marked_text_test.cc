// Which bytes of a rendered chat came from its messages, whatever the template does to them.
#include "chat/marked_text.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "quire/chat_input.h"
#include "quire/chat_template.h"

namespace quire {
namespace {

// The rendered text with what came from messages between brackets.
std::string brackets_around_marks(const RenderedChat& rendered) {
  std::string out;
  std::size_t at = 0;
  for (const TextSpan& span : rendered.from_messages) {
    EXPECT_LT(span.begin, span.end);
    EXPECT_TRUE(at == 0 || span.begin > at) << "spans that touch are one";
    EXPECT_LE(span.end, rendered.text.size());
    out += rendered.text.substr(at, span.begin - at) + "[" +
           rendered.text.substr(span.begin, span.end - span.begin) + "]";
    at = span.end;
  }
  return out + rendered.text.substr(at);
}

// Renders `source` with m, a message of the user, and t, the tools.
std::string marked_render(const std::string& source) {
  ChatInput chat;
  chat.messages = nlohmann::ordered_json::parse(R"([{
    "role": "user", "content": " ab cd ", "name": "é<x>", "n": 7,
    "parts": [{"text": "p"}, {"text": "q"}],
    "arguments": {"k <": "v\n", "list": [1, "w"]}}])");
  chat.tools = nlohmann::ordered_json::parse(R"([{"name": "f"}])");
  const ChatTemplate chat_template("{%- set m = messages[0] -%}{%- set c = m.content -%}" + source);
  return brackets_around_marks(chat_template.render_marked(chat));
}

TEST(MarkedText, FollowsMessagesThroughExpressions) {
  const std::pair<const char*, const char*> cases[] = {
      {"<{{ m.role }}>{{ c }}</>", "<user>[ ab cd ]</>"},
      {"{{ '<' + c + '>' }}", "<[ ab cd ]>"},
      {"{{ '<' ~ c ~ m.n ~ '>' }}", "<[ ab cd ]7>"},
      {"{{ c[2] }}-{{ c[1:3] }}-{{ ('x' ~ c ~ 'y')[-3::2] }}", "[b]-[ab]-[d]y"},
      {"{{ ('x' ~ c)[::-1] }}", "[ dc ba ]x"},
      {"{{ ('<' ~ c) * 2 }}", "<[ ab cd ]<[ ab cd ]"},
      {"{{ c.strip() }}|{{ ('. ' ~ c).lstrip('. ') }}", "[ab cd]|[ab cd ]"},
      {"{{ c.split() | join('+') }}", "[ab]+[cd]"},
      {"{{ ('x,' ~ c).split(',') | join('+') }}", "x+[ ab cd ]"},
      {"{{ ('x,' ~ c).rsplit(',', 1) | last }}", "[ ab cd ]"},
      {"{{ '-'.join(['x', c]) }}", "x-[ ab cd ]"},
      {"{{ c.replace('ab', 'x') }}", "[ ]x[ cd ]"},
      {"{{ 'a.b'.replace('.', c) }}", "a[ ab cd ]b"},
      {"{{ c.partition('b') | join('|') }}", "[ a]|[b]|[ cd ]"},
      {"{{ ('x' ~ c).removeprefix('x ') }}", "[ab cd ]"},
      {"{{ c.splitlines() | first }}", "[ ab cd ]"},
      {"{{ '%s=%5s!' % ('k', 'v') }}{{ '<%s>' % c }}", "k=    v!<[ ab cd ]>"},
      {"{{ '<{}:{!r}>'.format(c, 'x') }}", "<[ ab cd ]:'x'>"},
      {"{{ c.format() ~ c % () }}", "[ ab cd  ab cd ]"},
      {"{{ '%.3s' | format(c) }}", "[ ab]"},
      {"{% for x in m.name %}{{ x }},{% endfor %}", "[é],[<],[x],[>],"},
      {"{{ c if c else 'x' }}{{ nothing or c }}", "[ ab cd  ab cd ]"},
      {"{{ m.parts | map(attribute='text') | join('<') }}", "[p]<[q]"},
      {"{{ t is defined }}{{ tools[0].name }}", "False[f]"},
  };
  for (const auto& [source, expected] : cases) EXPECT_EQ(marked_render(source), expected) << source;
}

TEST(MarkedText, FollowsMessagesThroughFilters) {
  const std::pair<const char*, const char*> cases[] = {
      {"{{ ('<' ~ c ~ '>') | trim('<> ') }}", "[ab cd]"},
      {"{{ ('<' ~ c) | replace(' ', '_') }}", "<_[ab]_[cd]_"},
      {"{{ ('x' ~ c ~ '\\ny') | indent(2) }}", "x[ ab cd ]\n  y"},
      {"{{ ('xyz' ~ c) | truncate(6, true, '..', 0) }}", "xyz[ ].."},
      {"{{ c | string | safe }}{{ c | default('x') }}", "[ ab cd  ab cd ]"},
      {"{{ ('<' ~ c) | reverse }}", "[ dc ba ]<"},
      {"{{ [c, 'x'] | join('-') }}", "[ ab cd ]-x"},
      {"{{ [m.parts[1].text, 'b'] | sort | join }}", "b[q]"},
      {"{{ ('<b>' | safe) ~ (m.name | e) }}", "<b>[é&lt;x&gt;]"},
      {"{{ ('<b>' | safe) + m.name }}", "<b>[é&lt;x&gt;]"},
      // No byte is where it was: all or nothing.
      {"{{ 'x' | upper }}{{ c | upper }}{{ ('x' ~ c) | title }}", "X[ AB CD X Ab Cd ]"},
      {"{{ m.name.swapcase() }}{{ 'ab'.title() }}", "[É<X>]Ab"},
      {"{{ c | center(9) }}", " [ ab cd ] "},
      {"{{ c.ljust(9, '.') }}{{ '7'.zfill(3) }}", "[ ab cd ]..007"},
  };
  for (const auto& [source, expected] : cases) EXPECT_EQ(marked_render(source), expected) << source;
}

TEST(MarkedText, FollowsMessagesIntoJsonAndPrintedValues) {
  const std::pair<const char*, const char*> cases[] = {
      {"{{ m.arguments | tojson }}", R"({["k <"]: ["v\n"], ["list"]: [1, ["w"]]})"},
      {"{{ {'a': 'x', 'b': c} | tojson }}", R"({"a": "x", "b": [" ab cd "]})"},
      {"{{ ['x', c] }}", "['x', [' ab cd ']]"},
      {"{{ m.arguments }}", R"({['k <']: ['v\n'], ['list']: [1, ['w']]})"},
      {"{% for k, v in m.arguments.items() %}{{ k }}={{ v is string }};{% endfor %}",
       "[k <]=True;[list]=False;"},
      {"{{ dict(**m.arguments) | list | join(',') }}", "[k <],list"},
      {"{% macro f() %}{{ kwargs | list | join(',') }}{% endmacro %}{{ f(**m.arguments) }}",
       "[k <],list"},
  };
  for (const auto& [source, expected] : cases) EXPECT_EQ(marked_render(source), expected) << source;
}

TEST(MarkedText, FollowsMessagesThroughStatements) {
  const std::pair<const char*, const char*> cases[] = {
      {"{% set b %}<{{ c }}>{% endset %}{{ b }}{{ b | trim('<') }}", "<[ ab cd ]>[ ab cd ]>"},
      {"{% macro f(x) %}<{{ x }}>{% endmacro %}{{ f(c) ~ f('y') }}", "<[ ab cd ]><y>"},
      {"{% filter trim %}  <{{ c }}{% endfilter %}", "<[ ab cd]"},
      {"{% set ns = namespace(x='') %}{% for p in m.parts %}{% set ns.x = ns.x ~ '<' ~ p.text %}"
       "{% endfor %}{{ ns.x }}",
       "<[p]<[q]"},
      {"{% for p in m.parts recursive %}<{{ p.text }}{{ loop([]) }}{% endfor %}", "<[p]<[q]"},
      {"{% macro g() %}<{{ caller() }}>{% endmacro %}{% call g() %}{{ c }}{% endcall %}",
       "<[ ab cd ]>"},
      {"{% with x = c %}{{ x }}{% endwith %}{% generation %}{{ c }}!{% endgeneration %}",
       "[ ab cd  ab cd ]!"},
  };
  for (const auto& [source, expected] : cases) EXPECT_EQ(marked_render(source), expected) << source;
}

TEST(MarkedText, LeavesARoleThatIsOneWord) {
  const auto render = [](const std::string& role) {
    ChatInput chat;
    chat.messages = {{{"role", role}, {"content", "x"}}};
    return brackets_around_marks(
        ChatTemplate("{{ '<|' ~ messages[0].role ~ '|>' }}").render_marked(chat));
  };
  EXPECT_EQ(render("user"), "<|user|>");
  EXPECT_EQ(render("my-role_2"), "<|my-role_2|>");
  EXPECT_EQ(render("a|>b<|c"), "<|[a|>b<|c]|>");
}

// Clients set them as they set messages.
TEST(MarkedText, MarksVariablesOfTheRequest) {
  ChatInput chat;
  chat.messages = {{{"role", "user"}, {"content", "x"}}};
  chat.template_kwargs = {{"style", "<|im_start|>"},
                          {"documents", {{{"title", "t"}, {"text", "<|im_end|>"}}}}};
  const ChatTemplate chat_template(
      "<s>{{ style }}{% for d in documents %}, {{ d.title }}: {{ d.text }}{% endfor %}");
  EXPECT_EQ(brackets_around_marks(chat_template.render_marked(chat)),
            "<s>[<|im_start|>], [t]: [<|im_end|>]");
}

TEST(MarkedText, KeepsMarksInOrder) {
  using chat_internal::MarkedText;
  MarkedText text("ab");
  text.append(MarkedText("cd", true));
  text.append(MarkedText("ef", true));
  text.append("gh");
  text.append(text.part(3, 4));  // "defg"
  EXPECT_EQ(text.text(), "abcdefghdefg");
  EXPECT_EQ(text.marks(), (std::vector<TextSpan>{{2, 6}, {8, 11}}));
  EXPECT_EQ(text.part(6, 2).marks(), std::vector<TextSpan>());
  EXPECT_EQ(MarkedText("", true).marks(), std::vector<TextSpan>());
  EXPECT_TRUE(chat_internal::marked_name("a b").is_marked());
  EXPECT_FALSE(chat_internal::marked_name("a_b2").is_marked());
}

}  // namespace
}  // namespace quire
