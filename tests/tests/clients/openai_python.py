"""The official `openai` package."""
import asyncio
import json
from typing import Literal

import httpx
import openai
from pool import *
from pydantic import BaseModel

BASE = f"{URL}/v1"
client = openai.OpenAI(base_url=BASE, api_key=KEY, max_retries=0)
TOOL = {"type": "function", "function": {"name": "weather", "description": "Says the weather.", "parameters": WEATHER}}


class City(BaseModel):
    city: Literal["Paris", "Rome"]


def chats():
    whole = client.chat.completions.create(model=MODEL, messages=ASK, max_tokens=6, temperature=0, seed=1)
    said = whole.choices[0].message.content
    assert said and whole.model == MODEL and whole._request_id, whole
    assert whole.usage.completion_tokens and whole.usage.prompt_tokens, whole.usage
    stream = client.chat.completions.create(
        model=MODEL, messages=ASK, max_tokens=6, temperature=0, seed=1, stream=True,
        stream_options={"include_usage": True})
    chunks = list(stream)
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == said, chunks
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens, chunks[-1]
    likely = client.chat.completions.create(model=MODEL, messages=ASK, max_tokens=2, logprobs=True, top_logprobs=2)
    assert len(likely.choices[0].logprobs.content[0].top_logprobs) == 2, likely
    text = client.completions.create(model=MODEL, prompt="One, two, three,", max_tokens=6, temperature=0)
    assert text.choices[0].text, text


def structure():
    likeness = {"role": "user", "content": 'Paris as JSON: {"city": "Paris"}. Rome as JSON:'}
    parsed = client.chat.completions.parse(model=MODEL, messages=[likeness], max_tokens=24, response_format=City)
    assert parsed.choices[0].message.parsed.city in ["Paris", "Rome"], parsed


def tools():
    asked = dict(model=TOOLED, messages=ASK_WEATHER, tools=[TOOL], max_tokens=40, temperature=0)
    whole = client.chat.completions.create(**asked)
    call = whole.choices[0].message.tool_calls[0]
    assert call.function.name == "weather" and call.id, whole
    assert json.loads(call.function.arguments) == {"city": "Paris"}, call
    deltas = [chunk.choices[0].delta for chunk in client.chat.completions.create(**asked, stream=True)]
    parts = [part for delta in deltas for part in delta.tool_calls or [] if part.index == 0]
    assert parts[0].function.name == "weather" and parts[0].id, parts
    assert "".join(part.function.arguments or "" for part in parts) == call.function.arguments, parts
    said = {"role": "assistant", "tool_calls": [call.model_dump()]}
    told = [*ASK_WEATHER, said, {"role": "tool", "tool_call_id": call.id, "content": "rain"}]
    after = client.chat.completions.create(model=TOOLED, messages=told, tools=[TOOL], max_tokens=4)
    assert after.choices[0].message.role == "assistant", after


def responses():
    whole = client.responses.create(model=MODEL, input="Count.", max_output_tokens=6, temperature=0)
    assert whole.output_text and whole.usage.output_tokens, whole
    events = list(client.responses.create(
        model=MODEL, input="Count.", max_output_tokens=6, temperature=0, stream=True))
    text = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    assert text == whole.output_text and events[-1].type == "response.completed", [e.type for e in events]
    assert raised(openai.InternalServerError, lambda: client.responses.retrieve("resp_1")).status_code == 501


def embeddings():
    one = client.embeddings.create(model=EMBEDDER, input=["one", "two"])
    other = client.embeddings.create(model=EMBEDDER, input=["one", "two"], encoding_format="float")
    for first, second in zip(one.data, other.data, strict=True):
        differences = [abs(a - b) for a, b in zip(first.embedding, second.embedding, strict=True)]
        assert differences and max(differences) < 1e-4, differences
    assert len(one.data) == 2 and one.usage.prompt_tokens, one.usage


def lists():
    ids = [model.id for model in client.models.list()]
    assert MODEL in ids and EMBEDDER in ids, ids
    assert client.models.retrieve(MODEL).id == MODEL


def errors():
    def ask(model=MODEL, client=client, **more):
        return client.chat.completions.create(model=model, messages=ASK, max_tokens=4, **more)

    missing = raised(openai.NotFoundError, lambda: ask("gemma3-270"))
    assert (missing.code, missing.param) == ("model_not_found", "model") and MODEL in missing.message, missing
    raised(openai.NotFoundError, lambda: client.models.retrieve("no-such-model"))
    wrong = client.with_options(api_key=WRONG_KEY)
    assert raised(openai.AuthenticationError, lambda: ask(client=wrong)).code == "invalid_key"
    raised(openai.AuthenticationError, lambda: wrong.models.list())
    narrow = client.with_options(api_key=NARROW_KEY)
    assert raised(openai.NotFoundError, lambda: ask(client=narrow)).code == "model_not_found"
    reader = client.with_options(api_key=READER_KEY)
    assert raised(openai.PermissionDeniedError, lambda: ask(client=reader)).code == "not_allowed"
    purpose = raised(openai.BadRequestError, lambda: ask(EMBEDDER))
    assert purpose.param == "model" and "capabilities" in purpose.message, purpose
    # The engine's own.
    bad = raised(openai.BadRequestError, lambda: ask(response_format={"type": "no such"}))
    assert bad.type == "invalid_request_error" and bad.message, bad
    long = [{"role": "user", "content": "far too long " * 9000}]
    over = raised(openai.BadRequestError, lambda: client.chat.completions.create(model=MODEL, messages=long))
    assert over.type == "exceed_context_size_error", over.body
    statuses = Statuses()
    patient = openai.OpenAI(base_url=BASE, api_key=KEY, max_retries=3,
                            http_client=httpx.Client(event_hooks={"response": [statuses]}))
    full = raised(openai.InternalServerError, lambda: ask(BIG, patient))
    assert (full.status_code, full.code, statuses.codes()) == (503, "capacity_denied", [503]), (full, statuses)
    cannot = raised(openai.InternalServerError, lambda: ask(BROKEN, patient))
    assert (cannot.status_code, cannot.code, statuses.codes()) == (500, "engine_start_failed", [503, 500]), statuses
    # Inside a stream that has begun.
    stream, seen = client.chat.completions.create(model=DYING, messages=ASK, stream=True), []
    died = raised(openai.APIError, lambda: seen.extend(stream))
    assert seen and died.code == "engine_crashed", (seen, died)


def retries():
    statuses = Statuses()
    kept = openai.OpenAI(base_url=BASE, api_key=SINGLE_KEY, max_retries=0)
    stream = kept.chat.completions.create(model=SLOW, messages=ASK, stream=True)
    next(iter(stream))
    ask = dict(model=MODEL, messages=ASK, max_tokens=2)
    limited = raised(openai.RateLimitError, lambda: kept.chat.completions.create(**ask))
    assert limited.code == "rate_limited" and limited.response.headers["retry-after"] == "1", limited.response.headers

    def let_go(response):
        statuses(response)
        stream.close()
        until_free(SLOW)

    hooked = httpx.Client(event_hooks={"response": [let_go]})
    again = openai.OpenAI(base_url=BASE, api_key=SINGLE_KEY, max_retries=1, http_client=hooked)
    assert again.chat.completions.create(**ask).choices
    assert statuses.codes() == [429, 200] and statuses.pause() >= SECOND, statuses


async def cancellation():
    async with openai.AsyncOpenAI(base_url=BASE, api_key=KEY, max_retries=0) as client:
        for stream in [False, True]:
            asked = client.chat.completions.create(model=SLOW, messages=ASK, stream=stream)
            if stream:
                reply = await asked
                assert (await anext(aiter(reply))).id
                await reply.close()
            else:
                await expires(asked)
            until_free(SLOW)
        # Its one slot serves the next.
        stream = await client.chat.completions.create(model=SLOW, messages=ASK, stream=True)
        assert (await anext(aiter(stream))).id
        await stream.close()


async def expires(call):
    """The wait for `call` is given up, and with it the request."""
    try:
        await asyncio.wait_for(call, timeout=SECOND)
    except TimeoutError:
        return
    raise AssertionError("it ended by itself")


def timeouts():
    raised(openai.APITimeoutError, lambda: client.with_options(timeout=SECOND).chat.completions.create(
        model=SLOW, messages=ASK))
    until_free(SLOW)


run(chats, structure, tools, responses, embeddings, lists, errors, retries, cancellation, timeouts)
