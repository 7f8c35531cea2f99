#!/usr/bin/env python3
"""Measures how often drafts that share the model's noise are kept, beside what rejection sampling would accept.

    scripts/measure_shared_noise.py                                   the bundled model, and its int4 form as its draft model
    scripts/measure_shared_noise.py --model FOLDER --draft FOLDER --quantization int8

quire samples both models with the same numbers (a function of seed, position and token id) and keeps a draft where the
model would have sampled it. Rejection sampling, as vLLM does it, accepts a draft with the probability sum(min(p, q)) on
average, for the model's distribution p and the draft model's q. Both are measured on the same answers of the model, to
questions for words: what was kept by `quire serve`, p and q from the log-probabilities of the 20 likeliest tokens, so
that what rejection sampling accepts is a lower bound, by at most the rest's share. Answers go on behind their end, as a draft
behind it would count as not kept. Needs only the standard library.
"""

import argparse
import contextlib
import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
os.environ.setdefault("QUIRE_SOURCE_DIR", str(ROOT))
os.environ.setdefault("QUIRE_BINARY", str(ROOT / "build" / "release" / "src" / "quire"))
sys.path[:0] = [str(ROOT / "tests" / "e2e")]
import server_support  # noqa: E402
from support import BINARY  # noqa: E402

SEED = 11
MOST = 20  # log-probabilities
MAX_TOKENS = 160
WORDS = ("apple candid run happy river quickly brave stone music light paper house green winter bread silent travel "
         "garden metal mirror thunder gentle ancient copper shadow bridge honest orange market planet").split()


def generate(model, lines, *options):
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
        file.write("".join(json.dumps(line) + "\n" for line in lines))
        file.flush()
        command = [BINARY, "generate", model, "--device", "cpu", "--json", "--seed", SEED, "--top-k", 0, "--top-p", 1,
                   "--ignore-eos", "--prompt-file", file.name, *options]
        result = subprocess.run(list(map(str, command)), capture_output=True, encoding="utf-8", check=False)
    if result.returncode != 0:
        raise SystemExit(result.stderr)
    return [json.loads(line) for line in result.stdout.splitlines()]


def prompts_of(model):
    """The questions as token ids, in the model's chat template."""
    chats = [{"messages": [{"role": "user", "content": f"What does {word} mean?"}]} for word in WORDS]
    result = subprocess.run([BINARY, "tokenize", model, "--json"], input="\n".join(map(json.dumps, chats)),
                            capture_output=True, encoding="utf-8", check=True)
    return [json.loads(line)["token_ids"] for line in result.stdout.splitlines()]


def distribution(logprobs, temperature):
    """{token id: probability} at the temperature; the first entry is the token that was sampled, again."""
    weights = {entry["token_id"]: math.exp(entry["logprob"] / temperature) for entry in logprobs[1:]}
    total = sum(weights.values())
    return {token_id: weight / total for token_id, weight in weights.items()}


def overlap(args, prompts, temperature):
    """sum(min(p, q)), the mean over all tokens of the model's answers."""
    answers = generate(args.model, [{"prompt_token_ids": ids} for ids in prompts], "--temperature", temperature,
                       "--max-tokens", MAX_TOKENS, "--logprobs", MOST)
    texts = [ids + answer["token_ids"] for ids, answer in zip(prompts, answers)]
    drafts = generate(args.draft or args.model, [{"prompt_token_ids": ids} for ids in texts], "--max-tokens", 1,
                      "--prompt-logprobs", MOST, *(["--quantization", args.quantization] if args.quantization else []))
    shared = []
    for ids, answer, draft in zip(prompts, answers, drafts):
        for p, q in zip(answer["logprobs"], draft["prompt_logprobs"][len(ids):]):
            p, q = distribution(p, temperature), distribution(q, temperature)
            shared.append(sum(min(weight, q.get(token_id, 0)) for token_id, weight in p.items()))
    return sum(shared) / len(shared), len(shared)


def kept(args, prompts, temperature):
    """The share of drafts that are kept, one a step."""
    config = {"method": "draft_model", "model": args.draft or args.model, "num_speculative_tokens": 1,
              "adaptive": False}
    if args.quantization:
        config["quantization"] = args.quantization
    accepted = rejected = 0
    server = server_support.Server(args.model, "--device", "cpu", "--speculative-config", json.dumps(config))
    with contextlib.ExitStack() as stack:
        stack.callback(server.stop)
        for ids in prompts:
            body = {"prompt": ids, "top_k": 0, "top_p": 1, "ignore_eos": True, "temperature": temperature, "seed": SEED,
                    "max_tokens": MAX_TOKENS, "return_draft_usage": True}
            details = server.post("/v1/completions", body)[2]["usage"]["completion_tokens_details"]
            accepted += details["accepted_prediction_tokens"]
            rejected += details["rejected_prediction_tokens"]
    return accepted / (accepted + rejected), accepted + rejected


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--model", default=str(ROOT / "models" / "lexicon"), help="[the bundled one]")
    parser.add_argument("--draft", help="the draft model [the model itself]")
    parser.add_argument("--quantization", default="int4", help="of the draft model's weights; '' for none [int4]")
    args = parser.parse_args()
    prompts = prompts_of(args.model)
    print("| temperature | rejection sampling accepts | tokens | shared noise keeps | drafts | the least it could keep |\n"
          "|--:|--:|--:|--:|--:|--:|")
    for temperature in (0.3, 0.6, 1.0, 1.5):
        accepts, tokens = overlap(args, prompts, temperature)
        keeps, drafts = kept(args, prompts, temperature)
        least = accepts / (2 - accepts)  # (1 - d) / (1 + d)
        print(f"| {temperature} | {100 * accepts:.1f} % | {tokens} | {100 * keeps:.1f} % | {drafts} | {100 * least:.1f} % |",
              flush=True)


if __name__ == "__main__":
    sys.exit(main())
