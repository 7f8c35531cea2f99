#include "grammar/context_free.h"

#include <fmt/format.h>

#include <algorithm>

#include "grammar/regular_rules.h"
#include "quire/error.h"

namespace quire::grammar {

int ContextFreeGrammar::add_rule(std::string name) {
  names.push_back(std::move(name));
  of_rule.emplace_back();
  return static_cast<int>(names.size()) - 1;
}

void ContextFreeGrammar::add_production(int rule, std::vector<Symbol> symbols, Budget& budget) {
  budget.step();
  budget.take(sizeof(Production) + symbols.size() * sizeof(Symbol));
  of_rule[static_cast<size_t>(rule)].push_back(static_cast<int>(productions.size()));
  productions.push_back({rule, std::move(symbols)});
}

void ContextFreeGrammar::finish(Budget& budget) {
  // Both properties of rules are least fixed points.
  const auto spread = [&](auto holds) {
    std::vector<bool> found(names.size());
    for (bool has_changed = true; has_changed;) {
      has_changed = false;
      for (const Production& production : productions) {
        budget.step();
        if (found[static_cast<size_t>(production.rule)]) continue;
        const bool all = std::ranges::all_of(production.symbols, [&](const Symbol& symbol) {
          return symbol.rule >= 0 ? found[static_cast<size_t>(symbol.rule)] : holds(*symbol.text);
        });
        if (!all) continue;
        found[static_cast<size_t>(production.rule)] = true;
        has_changed = true;
      }
    }
    return found;
  };
  const std::vector<bool> can_end = spread([](const Dfa& text) { return !text.is_empty(); });
  if (!can_end[static_cast<size_t>(root)]) {
    throw Error(fmt::format("no text matches the rule {}: it never ends",
                            names[static_cast<size_t>(root)]));
  }
  for (std::vector<int>& of : of_rule) {
    std::erase_if(of, [&](int number) {
      const auto& symbols = productions[static_cast<size_t>(number)].symbols;
      return std::ranges::any_of(symbols, [&](const Symbol& symbol) {
        return symbol.rule >= 0 ? !can_end[static_cast<size_t>(symbol.rule)]
                                : symbol.text->is_empty();
      });
    });
  }
  fold_regular_rules(*this, budget);
  can_be_empty = spread([](const Dfa& text) { return text.accepts(text.start()); });
}

DfaPtr ContextFreeGrammar::text() const {
  const std::vector<int>& of_root = of_rule[static_cast<size_t>(root)];
  if (of_root.size() != 1) return nullptr;
  const auto& symbols = productions[static_cast<size_t>(of_root.front())].symbols;
  return symbols.size() == 1 ? symbols.front().text : nullptr;
}

EarleyMatcher::EarleyMatcher(const ContextFreeGrammar& grammar)
    : grammar_(&grammar), predicted_(grammar.names.size()) {
  predict(grammar.root);
  close();
}

void EarleyMatcher::predict(int rule) {
  if (predicted_[static_cast<size_t>(rule)]) return;
  predicted_[static_cast<size_t>(rule)] = true;
  const auto here = static_cast<int32_t>(places_.size());
  for (const int production : grammar_->of_rule[static_cast<size_t>(rule)]) {
    add(production, 0, here);
  }
}

void EarleyMatcher::add(int32_t production, int32_t dot, int32_t origin) {
  const auto& symbols = grammar_->productions[static_cast<size_t>(production)].symbols;
  const bool is_text =
      static_cast<size_t>(dot) < symbols.size() && symbols[static_cast<size_t>(dot)].rule < 0;
  add_item(
      {production, dot, origin, is_text ? symbols[static_cast<size_t>(dot)].text->start() : 0});
}

void EarleyMatcher::add_item(const Item& item) {
  ++num_steps_;
  if (items_.size() * 2 >= hashes_.size()) {
    hashes_.assign(std::max<size_t>(64, hashes_.size() * 2), 0);
    std::vector<Item> items = std::move(items_);
    items_.clear();
    for (const Item& old : items) add_item(old);
  }
  uint64_t hash = static_cast<uint32_t>(item.production) * 0x9E3779B97F4A7C15ULL;
  hash = (hash ^ static_cast<uint32_t>(item.dot)) * 0xFF51AFD7ED558CCDULL;
  hash = (hash ^ static_cast<uint32_t>(item.origin)) * 0xC4CEB9FE1A85EC53ULL;
  hash = (hash ^ static_cast<uint32_t>(item.state)) * 0x9E3779B97F4A7C15ULL;
  for (size_t i = (hash >> 20) % hashes_.size();; i = (i + 1) % hashes_.size()) {
    if (hashes_[i] == 0) {
      items_.push_back(item);
      hashes_[i] = items_.size();
      return;
    }
    if (items_[hashes_[i] - 1] == item) return;
  }
}

int EarleyMatcher::awaited(const Item& item) const {
  return grammar_->productions[static_cast<size_t>(item.production)]
      .symbols[static_cast<size_t>(item.dot)]
      .rule;
}

void EarleyMatcher::complete(int rule, int32_t origin) {
  const std::vector<Item>& waiting = places_[static_cast<size_t>(origin)];
  auto parent =
      std::ranges::lower_bound(waiting, rule, {}, [&](const Item& item) { return awaited(item); });
  for (; parent != waiting.end() && awaited(*parent) == rule; ++parent) {
    add(parent->production, parent->dot + 1, parent->origin);
  }
}

void EarleyMatcher::close() {
  const auto here = static_cast<int32_t>(places_.size());
  accepted_ = false;
  for (size_t i = 0; i < items_.size() && num_steps_ <= kMaxSteps; ++i) {
    const Item item = items_[i];
    const auto& production = grammar_->productions[static_cast<size_t>(item.production)];
    if (static_cast<size_t>(item.dot) == production.symbols.size()) {
      accepted_ |= production.rule == grammar_->root && item.origin == 0;
      // What can be empty was passed over where it was predicted.
      if (item.origin == here) continue;
      complete(production.rule, item.origin);
      continue;
    }
    const auto& symbol = production.symbols[static_cast<size_t>(item.dot)];
    const bool is_passed = symbol.rule >= 0
                               ? grammar_->can_be_empty[static_cast<size_t>(symbol.rule)]
                               : symbol.text->accepts(item.state);
    if (symbol.rule >= 0) predict(symbol.rule);
    if (is_passed) add(item.production, item.dot + 1, item.origin);
  }
  std::vector<Item> waiting;
  for (const Item& item : items_) {
    const auto& symbols = grammar_->productions[static_cast<size_t>(item.production)].symbols;
    if (static_cast<size_t>(item.dot) < symbols.size()) waiting.push_back(item);
  }
  std::ranges::sort(waiting, {}, [&](const Item& item) { return awaited(item); });
  num_items_ += waiting.size();
  places_.push_back(std::move(waiting));
}

bool EarleyMatcher::advance(uint8_t byte) {
  if (failed_) return false;
  items_.clear();
  std::ranges::fill(hashes_, 0);
  std::fill(predicted_.begin(), predicted_.end(), false);
  const size_t last = places_.size() - 1;
  std::vector<Item>& waiting = places_[last];
  const auto end =
      std::ranges::find_if(waiting, [&](const Item& item) { return awaited(item) >= 0; });
  for (auto item = waiting.begin(); item != end; ++item) {
    const auto& symbol = grammar_->productions[static_cast<size_t>(item->production)]
                             .symbols[static_cast<size_t>(item->dot)];
    const int32_t next = symbol.text->step(item->state, byte);
    if (next != Dfa::kDead) add_item({item->production, item->dot, item->origin, next});
  }
  // Only what waits for a rule is looked up again.
  waiting.erase(waiting.begin(), end);
  failed_ = items_.empty();
  if (!failed_) close();
  failed_ |= num_items_ > kMaxItems || num_steps_ > kMaxSteps;
  return !failed_;
}

bool EarleyMatcher::can_end() const {
  return !failed_ && accepted_;
}

}  // namespace quire::grammar
