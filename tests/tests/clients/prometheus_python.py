"""What there is to measure, read by Prometheus' own parsers, in both forms, beside the real engine."""
import json
import os
import urllib.error
import urllib.request

from prometheus_client import openmetrics, parser
from prometheus_client.openmetrics import parser as open_parser

POOL = json.loads(os.environ["POOL"])
URL, MODEL = POOL["url"], POOL["model"]
OPEN = "application/openmetrics-text;version=1.0.0"
# What an engine's counter is called that does not end as one must in the newer form.
ODD = "llamacpp:n_tokens_max"


def asked(path, body=None, key="all", **headers):
    headers["authorization"] = f"Bearer {POOL['keys'][key]}"
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(URL + path, data=data, headers=headers)
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status, answer.headers, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.headers, error.read().decode()


def families(accept, read):
    status, headers, text = asked("/metrics", accept=accept)
    assert status == 200, text
    found = list(read(text))
    names = [family.name for family in found]
    assert len(names) == len(set(names)), "each stands there once"
    return headers["content-type"], {family.name: family for family in found}, text


def value(found, family, name, **labels):
    """The one sample of this name whose labels are these among others."""
    hits = [s.value for s in found[family].samples if s.name == name and labels.items() <= s.labels.items()]
    assert len(hits) == 1, f"{name} {labels}: {hits}"
    return hits[0]


CHAT = {"model": MODEL, "messages": [{"role": "user", "content": "Count from one to five."}], "max_tokens": 16}
STATUS, _, REPLY = asked("/v1/chat/completions", CHAT)
assert STATUS == 200, REPLY
USAGE = json.loads(REPLY)["usage"]
assert asked("/v1/chat/completions", {"model": "made-up", "messages": []})[0] == 404

KIND, OLD, TEXT = families("text/plain", parser.text_string_to_metric_families)
assert KIND.startswith("text/plain; version=0.0.4"), KIND
KIND, NEW, _ = families(OPEN, open_parser.text_string_to_metric_families)
assert KIND.startswith("application/openmetrics-text; version=1.0.0"), KIND

for found in (OLD, NEW):
    assert value(found, "motorpool_requests", "motorpool_requests_total", model=MODEL, outcome="finished") == 1
    assert value(found, "motorpool_prompt_tokens", "motorpool_prompt_tokens_total", model=MODEL) == USAGE["prompt_tokens"]
    generated = value(found, "motorpool_generated_tokens", "motorpool_generated_tokens_total", model=MODEL)
    assert generated == USAGE["completion_tokens"] > 1
    for name in ("motorpool_time_to_first_token_seconds", "motorpool_inter_token_seconds", "motorpool_load_duration_seconds"):
        assert found[name].type == "histogram", found[name]
        assert value(found, name, name + "_count", model=MODEL) == 1, name
        assert value(found, name, name + "_sum", model=MODEL) > 0, name
    assert value(found, "motorpool_unrouted_requests", "motorpool_unrouted_requests_total", code="model_not_found") == 1
    assert value(found, "motorpool_memory_measured_bytes", "motorpool_memory_measured_bytes", device="system") > 50 << 20
    assert value(found, "motorpool_lora_requests_info", "motorpool_lora_requests_info", running_lora_adapters=MODEL) > 1e9
    # The engine's own, by its own count.
    tokens = value(found, "llamacpp:prompt_tokens", "llamacpp:prompt_tokens_total", model=MODEL, replica="0")
    assert tokens >= USAGE["prompt_tokens"], tokens
    assert value(found, "motorpool_engine_scrape_up", "motorpool_engine_scrape_up", model=MODEL, replica="0") == 1
assert "made-up" not in TEXT
assert OLD.keys() - {ODD} <= NEW.keys() | {ODD}, OLD.keys() - NEW.keys()
assert NEW["motorpool_committed_bytes"].unit == "bytes"
assert openmetrics and asked("/metrics", key="single")[0] == 403, "it asks models, and sees nothing"
