// Text of values: str(), repr() and json.dumps().
#include <algorithm>
#include <cmath>

#include "chat/text.h"
#include "chat/value.h"

namespace quire::chat_internal {
namespace {

// Appends repr() of values, nested ones too.
class ReprWriter {
 public:
  explicit ReprWriter(Runtime& runtime) : runtime_(runtime), out_(runtime) {}
  MarkedText release() { return out_.release(); }

  void write(const Value& value) {
    const Runtime::Level level(runtime_);
    switch (value.kind()) {
      case Kind::kUndefined:
        return out_.append("Undefined");
      case Kind::kNone:
        return out_.append("None");
      case Kind::kBool:
        return out_.append(value.as_int() != 0 ? "True" : "False");
      case Kind::kInt:
        return out_.append(std::to_string(value.as_int()));
      case Kind::kFloat:
        return out_.append(float_repr(value.as_double()));
      case Kind::kString:
        return write_string(value);
      case Kind::kList:
        return write_items("[", value.items(), "]");
      case Kind::kTuple:
        return write_items("(", value.items(), value.items().size() == 1 ? ",)" : ")");
      case Kind::kDict:
        return write_dict(value.dict());
      case Kind::kView:
        out_.append(type_name(value));
        return write_items("([", value.view().items, "])");
      case Kind::kRange:
        return write_range(value.range());
      case Kind::kNamespace:
        return write_namespace(value.name_space());
      default:
        runtime_.fail("a " + std::string(type_name(value)) + " has no text to print" +
                      (value.is(Kind::kIterator) ? "; add the filter 'list' or 'join'." : "."));
    }
  }

 private:
  void write_string(const Value& value) {
    if (value.is_markup()) out_.append("Markup(");
    out_.append(MarkedText(string_repr(value.text()), value.marked_text().is_marked()));
    if (value.is_markup()) out_.append(")");
  }

  void write_items(std::string_view open, const Items& items, std::string_view close) {
    out_.append(open);
    for (std::size_t i = 0; i < items.size(); ++i) {
      if (i > 0) out_.append(", ");
      write(items[i]);
    }
    out_.append(close);
  }

  void write_dict(const DictObject& dict) {
    out_.append("{");
    for (std::size_t i = 0; i < dict.entries.size(); ++i) {
      if (i > 0) out_.append(", ");
      write(dict.entries[i].first);
      out_.append(": ");
      write(dict.entries[i].second);
    }
    out_.append("}");
  }

  void write_range(const RangeObject& range) {
    out_.append("range(" + std::to_string(range.start) + ", " + std::to_string(range.stop));
    if (range.step != 1) out_.append(", " + std::to_string(range.step));
    out_.append(")");
  }

  void write_namespace(const NamespaceObject& name_space) {
    out_.append("<Namespace {");
    bool first = true;
    for (const auto& [name, value] : name_space.attributes) {
      if (!first) out_.append(", ");
      first = false;
      out_.append(MarkedText(string_repr(name), marked_name(name).is_marked()));
      out_.append(": ");
      write(value);
    }
    out_.append("}>");
  }

  Runtime& runtime_;
  TextBuilder out_;
};

std::string json_float(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  return float_repr(value);
}

class JsonWriter {
 public:
  JsonWriter(Runtime& runtime, const JsonStyle& style)
      : runtime_(runtime), style_(style), out_(runtime) {}
  MarkedText release() { return out_.release(); }

  void write(const Value& value) {
    const Runtime::Level level(runtime_);
    switch (value.kind()) {
      case Kind::kNone:
        return out_.append("null");
      case Kind::kBool:
        return out_.append(value.as_int() != 0 ? "true" : "false");
      case Kind::kInt:
        return out_.append(std::to_string(value.as_int()));
      case Kind::kFloat:
        return out_.append(json_float(value.as_double()));
      case Kind::kString:
        return write_string(value.marked_text());
      case Kind::kList:
      case Kind::kTuple:
        return write_array(value.items());
      case Kind::kDict:
        return write_object(value.dict());
      case Kind::kUndefined:
        runtime_.fail(value.undefined_reason() + ", so it cannot be written as JSON.");
      default:
        runtime_.fail("a " + std::string(type_name(value)) + " cannot be written as JSON.");
    }
  }

 private:
  void write_string(const MarkedText& text) {
    out_.append(MarkedText(json_quote(text.text(), style_.ensure_ascii), text.is_marked()));
  }

  void new_line() {
    if (!style_.indent) return;
    out_.append("\n");
    for (int i = 0; i < level_; ++i) out_.append(*style_.indent);
  }

  void write_array(const Items& items) {
    if (items.empty()) return out_.append("[]");
    out_.append("[");
    ++level_;
    for (std::size_t i = 0; i < items.size(); ++i) {
      if (i > 0) out_.append(style_.item_separator);
      new_line();
      write(items[i]);
    }
    --level_;
    new_line();
    out_.append("]");
  }

  void write_object(const DictObject& dict) {
    if (dict.entries.empty()) return out_.append("{}");
    std::vector<const std::pair<Value, Value>*> entries;
    entries.reserve(dict.entries.size());
    for (const auto& entry : dict.entries) entries.push_back(&entry);
    if (style_.sort_keys) {
      std::stable_sort(entries.begin(), entries.end(), [&](const auto* a, const auto* b) {
        return less(runtime_, a->first, b->first);
      });
    }
    out_.append("{");
    ++level_;
    for (std::size_t i = 0; i < entries.size(); ++i) {
      if (i > 0) out_.append(style_.item_separator);
      new_line();
      write_string(key_text(entries[i]->first));
      out_.append(style_.key_separator);
      write(entries[i]->second);
    }
    --level_;
    new_line();
    out_.append("}");
  }

  MarkedText key_text(const Value& key) {
    switch (key.kind()) {
      case Kind::kString:
        return key.marked_text();
      case Kind::kNone:
        return MarkedText("null");
      case Kind::kBool:
        return MarkedText(key.as_int() != 0 ? "true" : "false");
      case Kind::kInt:
        return MarkedText(std::to_string(key.as_int()));
      case Kind::kFloat:
        return MarkedText(json_float(key.as_double()));
      default:
        runtime_.fail("a " + std::string(type_name(key)) + " cannot be a key in JSON.");
    }
  }

  Runtime& runtime_;
  const JsonStyle& style_;
  TextBuilder out_;
  int level_ = 0;
};

}  // namespace

MarkedText to_text(Runtime& runtime, const Value& value) {
  if (value.is_string()) {
    runtime.work(value.text().size());
    return value.marked_text();
  }
  if (value.is_undefined()) return MarkedText();
  return repr(runtime, value);
}

MarkedText repr(Runtime& runtime, const Value& value) {
  ReprWriter writer(runtime);
  writer.write(value);
  return writer.release();
}

MarkedText to_json(Runtime& runtime, const Value& value, const JsonStyle& style) {
  JsonWriter writer(runtime, style);
  writer.write(value);
  return writer.release();
}

}  // namespace quire::chat_internal
