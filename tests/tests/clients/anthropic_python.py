"""The official `anthropic` package."""
import anthropic
import httpx
from pool import *

client = anthropic.Anthropic(base_url=URL, api_key=KEY, max_retries=0)
TOOL = {"name": "weather", "description": "Says the weather.", "input_schema": WEATHER}


def ask(model=MODEL, by=client, max_tokens=6, **more):
    return by.messages.create(model=model, messages=ASK, max_tokens=max_tokens, **more)


def messages():
    whole = ask()
    said = whole.content[0].text
    assert said and whole.role == "assistant" and whole.usage.output_tokens and whole._request_id, whole
    with client.messages.stream(model=MODEL, messages=ASK, max_tokens=6) as stream:
        streamed = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert streamed == said and final.usage.output_tokens == whole.usage.output_tokens, final
    assert final.stop_reason == whole.stop_reason, final
    system = ask(system="Be brief.", stop_sequences=["\n"])
    assert system.type == "message", system
    counted = client.messages.count_tokens(model=MODEL, messages=ASK)
    assert counted.input_tokens == whole.usage.input_tokens + (whole.usage.cache_read_input_tokens or 0), counted


def tools():
    asked = dict(model=TOOLED, messages=ASK_WEATHER, tools=[TOOL], max_tokens=40)
    whole = client.messages.create(**asked)
    with client.messages.stream(**asked) as stream:
        streamed = stream.get_final_message()
    for reply in [whole, streamed]:
        call = next(block for block in reply.content if block.type == "tool_use")
        assert (call.name, call.input) == ("weather", {"city": "Paris"}) and call.id, reply
    result = {"type": "tool_result", "tool_use_id": call.id, "content": "rain"}
    told = ASK_WEATHER + [{"role": "assistant", "content": whole.content[:1]}, {"role": "user", "content": [result]}]
    after = client.messages.create(model=TOOLED, messages=told, tools=[TOOL], max_tokens=4)
    assert after.role == "assistant", after


def lists():
    assert MODEL in [model.id for model in client.models.list()]
    assert client.models.retrieve(MODEL).id == MODEL


def errors():
    missing = raised(anthropic.NotFoundError, lambda: ask("gemma3-270"))
    assert missing.body["error"]["type"] == "not_found_error" and MODEL in missing.message, missing.body
    assert missing.request_id == missing.body["request_id"], missing.body
    wrong = client.with_options(api_key=WRONG_KEY)
    assert raised(anthropic.AuthenticationError, lambda: ask(by=wrong)).type == "authentication_error"
    narrow = client.with_options(api_key=NARROW_KEY)
    assert raised(anthropic.NotFoundError, lambda: ask(by=narrow)).type == "not_found_error"
    reader = client.with_options(api_key=READER_KEY)
    assert raised(anthropic.PermissionDeniedError, lambda: ask(by=reader)).type == "permission_error"
    assert raised(anthropic.BadRequestError, lambda: ask(EMBEDDER)).type == "invalid_request_error"
    # The engine's own refusal, in the words of this API.
    bad = raised(anthropic.BadRequestError, lambda: ask(extra_body={"messages": [{"role": "user", "content": 7}]}))
    assert bad.type == "invalid_request_error" and bad.message, bad
    statuses = Statuses()
    hooked = anthropic.DefaultHttpxClient(event_hooks={"response": [statuses]})
    patient = anthropic.Anthropic(base_url=URL, api_key=KEY, max_retries=3, http_client=hooked)
    full = raised(anthropic.APIStatusError, lambda: ask(BIG, patient))
    assert (full.type, full.status_code, statuses.codes()) == ("overloaded_error", 503, [503]), (full, statuses)
    cannot = raised(anthropic.InternalServerError, lambda: ask(BROKEN, patient))
    assert (cannot.type, statuses.codes()) == ("api_error", [503, 500]), (cannot, statuses)
    # Inside a stream that has begun.
    stream, seen = ask(DYING, max_tokens=20, stream=True), []
    died = raised(anthropic.APIStatusError, lambda: seen.extend(stream))
    assert seen and died.body["error"]["code"] == "engine_crashed", (seen, died.body)


def retries():
    kept = anthropic.Anthropic(base_url=URL, api_key=SINGLE_KEY, max_retries=0)
    stream = ask(SLOW, kept, 20, stream=True)
    next(iter(stream))
    limited = raised(anthropic.RateLimitError, lambda: ask(by=kept))
    assert (limited.type, limited.response.headers["retry-after"]) == ("rate_limit_error", "1"), limited.body
    statuses = Statuses()

    def let_go(response):
        statuses(response)
        stream.close()
        until_free(SLOW)

    hooked = anthropic.DefaultHttpxClient(event_hooks={"response": [let_go]})
    again = anthropic.Anthropic(base_url=URL, api_key=SINGLE_KEY, max_retries=1, http_client=hooked)
    assert ask(by=again).content
    assert statuses.codes() == [429, 200] and statuses.pause() >= SECOND, statuses


def cancellation():
    raised(anthropic.APITimeoutError, lambda: ask(SLOW, client.with_options(timeout=SECOND), 20))
    until_free(SLOW)
    # Its one slot serves the next.
    with client.messages.stream(model=SLOW, messages=ASK, max_tokens=20) as stream:
        next(iter(stream))
    until_free(SLOW)


run(messages, tools, lists, errors, retries, cancellation)
