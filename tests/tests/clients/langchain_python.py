"""LangChain's client for OpenAI's API, `langchain-openai`."""
import httpx
import openai
from langchain_core.messages import ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI, OpenAIEmbeddings
from pool import *

BASE = f"{URL}/v1"
TEXT = ASK[0]["content"]


@tool
def weather(city: str) -> str:
    """Says the weather."""
    return f"rain in {city}"


def chat(model=MODEL, key=KEY, **more):
    return ChatOpenAI(model=model, base_url=BASE, api_key=key, **{"max_retries": 0, "max_tokens": 6, **more})


def chats():
    whole = chat(temperature=0).invoke(TEXT)
    assert whole.content and whole.usage_metadata["output_tokens"], whole
    streamed = list(chat(temperature=0).stream(TEXT))
    assert "".join(chunk.content for chunk in streamed) == whole.content, streamed
    assert chat(use_responses_api=True).invoke(TEXT).text, "by the newer API"


async def asynchronously():
    both = await chat().abatch([TEXT, "Hello."])
    assert all(one.content for one in both), both


def tools():
    model = chat(TOOLED, max_tokens=40, temperature=0).bind_tools([weather])
    asked = model.invoke(ASK_WEATHER)
    call = asked.tool_calls[0]
    assert (call["name"], call["args"]) == ("weather", {"city": "Paris"}), asked
    only = asked.model_copy(update={"tool_calls": [call], "invalid_tool_calls": [], "additional_kwargs": {}})
    told = ToolMessage(weather.invoke(call["args"]), tool_call_id=call["id"])
    assert model.invoke([*ASK_WEATHER, only, told]).type == "ai"


def embeddings():
    # It counts tokens as OpenAI's models do and sends numbers, unless it is told that this is somebody else.
    embedder = OpenAIEmbeddings(model=EMBEDDER, base_url=BASE, api_key=KEY, check_embedding_ctx_length=False)
    rows = embedder.embed_documents(["one", "two"])
    assert len(rows) == 2 and rows[0] and rows[0] != rows[1], rows
    assert len(embedder.embed_query("one")) == len(rows[0])


def errors():
    raised(openai.NotFoundError, lambda: chat("gemma3-270").invoke(TEXT))
    raised(openai.AuthenticationError, lambda: chat(key=WRONG_KEY).invoke(TEXT))
    raised(openai.InternalServerError, lambda: chat(BIG, max_retries=2).invoke(TEXT))
    died = raised(openai.APIError, lambda: list(chat(DYING, max_tokens=20).stream(TEXT)))
    assert died.code == "engine_crashed", died


def retries():
    stream = chat(SLOW, SINGLE_KEY, max_tokens=20).stream(TEXT)
    next(stream)
    raised(openai.RateLimitError, lambda: chat(key=SINGLE_KEY).invoke(TEXT))
    statuses = Statuses()

    def let_go(response):
        statuses(response)
        stream.close()
        until_free(SLOW)

    hooked = httpx.Client(event_hooks={"response": [let_go]})
    assert chat(key=SINGLE_KEY, max_retries=1, http_client=hooked).invoke(TEXT).content
    assert statuses.codes() == [429, 200] and statuses.pause() >= SECOND, statuses


run(chats, asynchronously, tools, embeddings, errors, retries)
