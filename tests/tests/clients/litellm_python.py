"""`litellm`, by each of the APIs that it can call us by."""
import os

# It would fetch its table of prices.
os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"

import litellm
from pool import *

litellm.suppress_debug_info = True
litellm.telemetry = False
BASE = f"{URL}/v1"
TOOL = {"type": "function", "function": {"name": "weather", "description": "Says the weather.", "parameters": WEATHER}}


def ask(model=MODEL, key=KEY, provider="openai", **more):
    base = BASE if provider == "openai" else URL
    more = {"max_tokens": 6, "messages": ASK, "max_retries": 0, **more}
    return litellm.completion(f"{provider}/{model}", api_base=base, api_key=key, **more)


def chats():
    for provider in ["openai", "anthropic"]:
        whole = ask(provider=provider, temperature=0)
        said = whole.choices[0].message.content
        assert said and whole.usage.completion_tokens, whole
        streamed = "".join(c.choices[0].delta.content or "" for c in ask(provider=provider, temperature=0, stream=True))
        assert streamed == said, (provider, streamed, said)


async def asynchronously():
    whole = await litellm.acompletion(f"openai/{MODEL}", messages=ASK, max_tokens=4, api_base=BASE, api_key=KEY)
    assert whole.choices[0].message.content, whole


def tools():
    reply = ask(TOOLED, messages=ASK_WEATHER, tools=[TOOL], max_tokens=40)
    call = reply.choices[0].message.tool_calls[0]
    assert (call.function.name, json.loads(call.function.arguments)) == ("weather", {"city": "Paris"}), reply


def embeddings():
    rows = litellm.embedding(f"openai/{EMBEDDER}", input=["one", "two"], api_base=BASE, api_key=KEY).data
    assert len(rows) == 2 and rows[0]["embedding"], rows


def errors():
    for provider in ["openai", "anthropic"]:
        raised(litellm.NotFoundError, lambda: ask("gemma3-270", provider=provider))
        raised(litellm.AuthenticationError, lambda: ask(key=WRONG_KEY, provider=provider))
    raised(litellm.BadRequestError, lambda: ask(EMBEDDER))
    raised(litellm.ServiceUnavailableError, lambda: ask(BIG))
    raised(litellm.InternalServerError, lambda: ask(BROKEN))


def retries():
    stream = ask(SLOW, SINGLE_KEY, max_tokens=20, stream=True)
    next(stream)
    raised(litellm.RateLimitError, lambda: ask(key=SINGLE_KEY))
    # Let go while it waits for its second try.
    asyncio.run(let_go_meanwhile(stream))
    until_free(SLOW)


async def let_go_meanwhile(stream):
    asked = asyncio.create_task(asyncio.to_thread(ask, key=SINGLE_KEY, max_retries=1))
    await asyncio.sleep(SECOND / 4)
    stream.completion_stream.response.close()
    assert (await asked).choices, "it was tried again"


run(chats, asynchronously, tools, embeddings, errors, retries)
