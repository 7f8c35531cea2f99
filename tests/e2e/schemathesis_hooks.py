"""What schemathesis, which loads this, cannot read out of /openapi.json."""

import json
import re

import schemathesis

# Refusals that depend on several fields, on the tokenizer or on the model's template: no schema says them.
BEYOND_THE_SCHEMA = re.compile(
    r"The prompt has \d+ tokens"
    r"|The request asks for \d+ answers \("
    r"|min_tokens is \d+, but must be at most max_tokens"
    r"|best_of is \d+, but must equal n"
    r"|tool_choice names the function .* which is not among tools"
    r"| cannot be enforced: "
    r"|are both given, but an answer follows one of them"
    r"|^lora_path is |^lora_path has |adapter_config\.json|which is the model itself|is loaded already"
    r"|^The name of the adapter has \d+ bytes"
    r"|structured_outputs is empty, but must have one of"
    r"|begins with none of the triggers"
    r"|(structured_outputs\.|guided_)structural_tag\S* is "  # of its form as a string
    r"|An answer takes at least \d+ tokens"
    r"|template knows no tool calls, so none can be forced", re.DOTALL)


class Recent:
    """The id of a request that is over, for every second question about one."""

    def __init__(self):
        self.request_id = None
        self.turn = 0

    def seen(self, case, response):
        if case.operation.label.startswith("POST /v1/"):
            self.request_id = response.headers["x-request-id"][0]

    def ask_for(self, path_parameters):
        self.turn += 1
        if self.request_id is None or self.turn % 2:
            return path_parameters
        return {**path_parameters, "request_id": self.request_id}


RECENT = Recent()


@schemathesis.hook
def after_call(context, case, response):
    RECENT.seen(case, response)


@schemathesis.hook
def map_path_parameters(context, path_parameters):
    if context.operation.path != "/v1/requests/{request_id}":
        return path_parameters
    return RECENT.ask_for(path_parameters)


@schemathesis.hook
def filter_failure(context, failure, case, response):
    if failure.code != "ST202" or response.status_code != 400:
        return True
    return not BEYOND_THE_SCHEMA.search(json.loads(response.content)["error"]["message"])
