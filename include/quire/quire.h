#pragma once
// Everything of the public API.
#include "quire/async_llm.h"
#include "quire/bundled_model.h"
#include "quire/chat_template.h"
#include "quire/engine_config.h"
#include "quire/error.h"
#include "quire/llm.h"
#include "quire/llm_engine.h"
#include "quire/plan.h"
#include "quire/request_output.h"
#include "quire/sampling_params.h"
#include "quire/tokenizer.h"
#include "quire/version.h"
