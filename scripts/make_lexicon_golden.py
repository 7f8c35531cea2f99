#!/usr/bin/env python3
"""Writes tests/golden/lexicon/prompts.json: what transformers answers, greedy, with models/lexicon in fp32.

    scripts/train_lexicon.py prepare --model /tmp/unused    # the dictionary, from WordNet
    scripts/make_lexicon_golden.py

Each of the 200 cases has the chat messages, the rendered prompt, its token ids, and the ids that follow (at most 64,
the closing <|im_end|> included). The weights are the folder's bf16 ones, widened to fp32. `min_margin` is the smallest
lead that a chosen token's logit has over the next best: a runtime that sums in another order must agree unless its
error exceeds it. Needs torch and transformers.
"""

import argparse
import json
import pathlib
import random
import sys

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "scripts"))

from lexicon import answers, held_out  # noqa: E402
from lexicon.conversations import ConversationSource, WordMaker  # noqa: E402
from lexicon.wordnet import Lexicon  # noqa: E402

CASES = 200
MAX_NEW_TOKENS = 64


def draw_messages(lexicon: Lexicon, rng: random.Random) -> list[list[dict[str, str]]]:
    """Half are conversations as in training, up to their last question; half are held-out wordings."""
    source, maker = ConversationSource(lexicon), WordMaker(lexicon)
    cases = [source.draw(rng)[:-1] for _ in range(CASES // 2)]
    wordings = held_out.DEFINE * 3 + held_out.POS + held_out.EXAMPLE + held_out.SYNONYM
    while len(cases) < CASES:
        entry = rng.choice(lexicon.entries)
        word = maker.make(rng, held_out=True) if rng.random() < 0.1 else entry.word
        name = answers.ARTICLES[entry.parts[0].name]
        question = rng.choice(wordings).replace("{w}", word).replace("{name}", name)
        cases.append([{"role": "user", "content": question}])
    return cases


def greedy(model, prompt_ids: list[int], stop: list[int]) -> tuple[list[int], float]:
    """The ids generated, and the smallest lead of a chosen token."""
    ids, past, output, margin = torch.tensor([prompt_ids]), None, [], float("inf")
    while len(output) < MAX_NEW_TOKENS and (not output or output[-1] not in stop):
        with torch.inference_mode():
            result = model(input_ids=ids, past_key_values=past, use_cache=True)
        past = result.past_key_values
        best = result.logits[0, -1].topk(2)
        margin = min(margin, (best.values[0] - best.values[1]).item())
        output.append(best.indices[0].item())
        ids = torch.tensor([output[-1:]])
    return output, margin


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=pathlib.Path, default=ROOT / "models" / "lexicon")
    parser.add_argument("--data", type=pathlib.Path, default=ROOT / "build" / "lexicon-data")
    parser.add_argument("--output", type=pathlib.Path, default=ROOT / "tests" / "golden" / "lexicon" / "prompts.json")
    args = parser.parse_args()

    lexicon = Lexicon.load(args.data / "lexicon.json")
    tokenizer = AutoTokenizer.from_pretrained(args.model)
    model = AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.bfloat16).float().eval()
    stop = model.generation_config.eos_token_id
    cases = []
    for messages in draw_messages(lexicon, random.Random(7)):
        prompt = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        prompt_ids = tokenizer(prompt, add_special_tokens=False)["input_ids"]
        output_ids, margin = greedy(model, prompt_ids, stop)
        cases.append(
            {
                "messages": messages,
                "prompt": prompt,
                "prompt_ids": prompt_ids,
                "output_ids": output_ids,
                "min_margin": round(margin, 6),
            }
        )
    args.output.parent.mkdir(parents=True, exist_ok=True)
    lines = ",\n".join(json.dumps(case, ensure_ascii=False, separators=(",", ":")) for case in cases)
    args.output.write_text("[\n" + lines + "\n]\n", encoding="utf-8")
    print(f"{len(cases)} cases, {args.output.stat().st_size} bytes, smallest margin "
          f"{min(case['min_margin'] for case in cases)}, in {args.output}")


if __name__ == "__main__":
    main()
