"""The checkpoints that scripts/make_model_goldens.py makes: a table."""

QWEN3 = dict(
    vocab_size=128,
    hidden_size=32,
    intermediate_size=56,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=16,
    max_position_embeddings=256,
)
QWEN2 = dict(
    vocab_size=128,
    hidden_size=32,
    intermediate_size=64,
    num_hidden_layers=2,
    num_attention_heads=2,
    num_key_value_heads=1,
    max_position_embeddings=256,
)
LLAMA = dict(
    vocab_size=131,
    hidden_size=32,
    intermediate_size=72,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=256,
)
MISTRAL = dict(
    vocab_size=130,
    hidden_size=48,
    intermediate_size=64,
    num_hidden_layers=2,
    num_attention_heads=3,
    num_key_value_heads=1,
    max_position_embeddings=512,
)
PHI3 = dict(
    vocab_size=132,
    hidden_size=64,
    intermediate_size=40,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=1024,
    pad_token_id=0,
)
# Factors of LongRoPE for the 6 frequencies of three quarters of a head of 16 elements.
LONGROPE = dict(
    partial_rotary_factor=0.75,
    short_factor=[1.0, 1.05, 1.1, 1.2, 1.35, 1.5],
    long_factor=[1.0, 1.2, 1.9, 3.5, 7.0, 12.5],
)


def rope(kind="default", theta=10000.0, **more):
    return {"rope_type": kind, "rope_theta": theta, **more}


# name -> about, family, config fields, and how to write it:
#   old         the older spelling of config.json: rope_theta, rope_scaling, torch_dtype
#   type_key    the key that names the RoPE type in rope_scaling: "rope_type", or the oldest "type"
#   drop        fields that older configs do not have
#   dtype       of the stored weights
#   shard       max_shard_size for save_pretrained
#   lengths     of the prompts
#   max_model_len, steps
CASES = {
    "qwen3-tied": dict(
        about="QK norm, head_dim unlike hidden_size / heads, tied embeddings",
        family="Qwen3",
        config=QWEN3 | dict(tie_word_embeddings=True, rope_parameters=rope(theta=1e6)),
    ),
    "qwen3-bias-sharded": dict(
        about="attention_bias, an lm_head of its own, three layers, one KV head, shards with an index",
        family="Qwen3",
        config=QWEN3
        | dict(
            num_hidden_layers=3,
            intermediate_size=40,
            num_key_value_heads=1,
            attention_bias=True,
            rope_parameters=rope(theta=1e6),
        ),
        shard="48KB",
    ),
    "qwen3-bf16": dict(
        about="bfloat16 weights and the older spelling, as Qwen3 is published",
        family="Qwen3",
        config=QWEN3 | dict(tie_word_embeddings=True, rope_parameters=rope(theta=1e6)),
        dtype="bfloat16",
        old=True,
        drop=["layer_types"],
    ),
    "qwen3-yarn": dict(
        about="YaRN with prompts beyond the original length, the older spelling",
        family="Qwen3",
        config=QWEN3
        | dict(
            tie_word_embeddings=True,
            max_position_embeddings=64,
            rope_parameters=rope("yarn", 1e6, factor=4.0, original_max_position_embeddings=64),
        ),
        old=True,
        drop=["layer_types"],
    ),
    "qwen3-sliding": dict(
        about="use_sliding_window from layer max_window_layers on",
        family="Qwen3",
        config=QWEN3
        | dict(use_sliding_window=True, sliding_window=24, max_window_layers=1, rope_parameters=rope(theta=1e6)),
    ),
    "qwen2-tied": dict(
        about="QKV bias, tied embeddings, the older spelling; sliding_window is there but not used",
        family="Qwen2",
        config=QWEN2 | dict(tie_word_embeddings=True, rope_parameters=rope(theta=1e6)),
        old=True,
        drop=["layer_types"],
        extra=dict(sliding_window=32, max_window_layers=2),
    ),
    "qwen2-sliding": dict(
        about="use_sliding_window with max_window_layers and no layer_types, the older spelling",
        family="Qwen2",
        config=QWEN2
        | dict(
            num_hidden_layers=3,
            intermediate_size=40,
            use_sliding_window=True,
            sliding_window=16,
            max_window_layers=1,
            rope_parameters=rope(),
        ),
        old=True,
        drop=["layer_types"],
    ),
    "qwen2-layer-types": dict(
        about="layer_types decide which layers have the sliding window, against max_window_layers",
        family="Qwen2",
        config=QWEN2
        | dict(
            num_hidden_layers=3,
            intermediate_size=40,
            use_sliding_window=True,
            sliding_window=20,
            max_window_layers=3,
            layer_types=["sliding_attention", "full_attention", "sliding_attention"],
            rope_parameters=rope(),
        ),
    ),
    "qwen2-yarn-bf16": dict(
        about='YaRN spelt "type", as Qwen2.5\'s model cards give it; bfloat16, shards',
        family="Qwen2",
        config=QWEN2
        | dict(
            max_position_embeddings=64,
            rope_parameters=rope("yarn", 1e6, factor=4.0, original_max_position_embeddings=64),
        ),
        dtype="bfloat16",
        old=True,
        type_key="type",
        drop=["layer_types"],
        shard="32KB",
    ),
    "llama-mha": dict(
        about="as many KV heads as heads; no head_dim, num_key_value_heads or rope_theta in the config, as early Llamas",
        family="Llama",
        config=LLAMA | dict(num_key_value_heads=4, intermediate_size=48),
        old=True,
        drop=["head_dim", "num_key_value_heads", "rope_theta", "rope_scaling", "attention_bias", "mlp_bias"],
    ),
    "llama-bias": dict(
        about="attention_bias (o_proj too) and mlp_bias",
        family="Llama",
        config=LLAMA | dict(attention_bias=True, mlp_bias=True, rope_parameters=rope(theta=5e5)),
    ),
    "llama-head-dim": dict(
        about="head_dim unlike hidden_size / heads, one layer, a larger norm epsilon",
        family="Llama",
        config=LLAMA
        | dict(num_hidden_layers=1, head_dim=24, num_key_value_heads=1, rms_norm_eps=1e-3, rope_parameters=rope()),
    ),
    "llama-linear": dict(
        about='linear RoPE scaling spelt "type"',
        family="Llama",
        config=LLAMA | dict(max_position_embeddings=64, rope_parameters=rope("linear", factor=4.0)),
        old=True,
        type_key="type",
        max_model_len=256,
    ),
    "llama-dynamic": dict(
        about="dynamic NTK scaling at the original length, where it changes nothing",
        family="Llama",
        config=LLAMA | dict(rope_parameters=rope("dynamic", factor=2.0)),
        old=True,
        type_key="type",
    ),
    "llama-dynamic-long": dict(
        about="dynamic NTK scaling with its base computed for max_model_len, four times the original length",
        family="Llama",
        config=LLAMA | dict(max_position_embeddings=32, rope_parameters=rope("dynamic", factor=4.0)),
        lengths=[128],
        max_model_len=128,
        steps=0,
    ),
    "llama-yarn": dict(
        about="YaRN with its own betas",
        family="Llama",
        config=LLAMA
        | dict(
            rope_parameters=rope(
                "yarn", factor=8.0, original_max_position_embeddings=32, beta_fast=16.0, beta_slow=2.0
            )
        ),
    ),
    "llama-yarn-attention-factor": dict(
        about="YaRN with attention_factor and without truncation of the correction range",
        family="Llama",
        config=LLAMA
        | dict(
            rope_parameters=rope(
                "yarn", 50000.0, factor=8.0, original_max_position_embeddings=32, attention_factor=0.8, truncate=False
            )
        ),
    ),
    "llama-yarn-mscale": dict(
        about="YaRN with mscale and mscale_all_dim",
        family="Llama",
        config=LLAMA
        | dict(
            rope_parameters=rope(
                "yarn", factor=16.0, original_max_position_embeddings=16, mscale=1.5, mscale_all_dim=0.7
            )
        ),
    ),
    "llama3": dict(
        about="Llama 3's RoPE scaling in the newer spelling",
        family="Llama",
        config=LLAMA
        | dict(
            head_dim=16,
            intermediate_size=48,
            max_position_embeddings=512,
            rope_parameters=rope(
                "llama3",
                50000.0,
                factor=8.0,
                low_freq_factor=1.0,
                high_freq_factor=4.0,
                original_max_position_embeddings=64,
            ),
        ),
    ),
    "llama3-bf16": dict(
        about="Llama 3's RoPE scaling, tied embeddings, bfloat16 and the older spelling, as Llama 3.2 is published",
        family="Llama",
        config=LLAMA
        | dict(
            head_dim=16,
            tie_word_embeddings=True,
            max_position_embeddings=2048,
            rope_parameters=rope(
                "llama3",
                5e5,
                factor=32.0,
                low_freq_factor=1.0,
                high_freq_factor=4.0,
                original_max_position_embeddings=128,
            ),
            bos_token_id=1,
            eos_token_id=[2, 8, 9],
        ),
        dtype="bfloat16",
        old=True,
    ),
    "llama-fp16": dict(
        about="float16 weights, shards with an index, the older spelling, as Llama 2 is published",
        family="Llama",
        config=LLAMA | dict(hidden_size=64, num_key_value_heads=4, intermediate_size=40),
        dtype="float16",
        old=True,
        drop=["head_dim"],
        shard="40KB",
    ),
    "llama-partial-rotary": dict(
        about="RoPE on the first half of each head only",
        family="Llama",
        config=LLAMA | dict(head_dim=16, rope_parameters=rope(partial_rotary_factor=0.5)),
        partial=True,
    ),
    "llama-partial-rotary-yarn": dict(
        about="RoPE on three quarters of each head, with YaRN, the older spelling",
        family="Llama",
        config=LLAMA
        | dict(
            head_dim=16,
            rope_parameters=rope(
                "yarn", factor=4.0, original_max_position_embeddings=64, partial_rotary_factor=0.75
            ),
        ),
        partial=True,
        old=True,
    ),
    "mistral-sliding": dict(
        about="a sliding window smaller than the prompts, on every layer",
        family="Mistral",
        config=MISTRAL | dict(sliding_window=20, rope_parameters=rope()),
        old=True,
        drop=["head_dim"],
    ),
    "mistral-bf16": dict(
        about="sliding_window null, head_dim unlike hidden_size / heads, bfloat16, shards",
        family="Mistral",
        config=MISTRAL
        | dict(
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=16,
            sliding_window=None,
            rope_parameters=rope(theta=1e6),
        ),
        dtype="bfloat16",
        shard="32KB",
    ),
    "phi3-sliding": dict(
        about="qkv_proj and gate_up_proj fused in the checkpoint, a sliding window on every layer",
        family="Phi3",
        config=PHI3 | dict(sliding_window=20, rope_parameters=rope()),
        old=True,
    ),
    "phi3-longrope-short": dict(
        about="LongRoPE up to the original length, on three quarters of each head, tied embeddings, the older "
        "spelling and bfloat16, as Phi-4-mini is published",
        family="Phi3",
        config=PHI3
        | dict(
            tie_word_embeddings=True,
            original_max_position_embeddings=256,
            rope_parameters=rope("longrope", **LONGROPE),
        ),
        dtype="bfloat16",
        old=True,
        type_key="type",
    ),
    "phi3-longrope-long": dict(
        about="LongRoPE's factors for sequences beyond the original length, which max_model_len is",
        family="Phi3",
        config=PHI3
        | dict(
            original_max_position_embeddings=64,
            rope_parameters=rope("longrope", **LONGROPE),
        ),
        shard="32KB",
        lengths=[100, 150],
    ),
}
