"""The official `ollama` package."""
import ollama
from pool import *

client = ollama.Client(host=URL, headers={"authorization": f"Bearer {KEY}"})
SHORT = {"num_predict": 6, "temperature": 0}
TOOL = {"type": "function", "function": {"name": "weather", "description": "Says the weather.", "parameters": WEATHER}}


def chats():
    whole = client.chat(MODEL, ASK, options=SHORT)
    assert whole.message.content and whole.done and whole.eval_count, whole
    parts = list(client.chat(MODEL, ASK, options=SHORT, stream=True))
    assert "".join(part.message.content or "" for part in parts) == whole.message.content, parts
    assert parts[-1].done and parts[-1].eval_count == whole.eval_count, parts[-1]
    text = client.generate(MODEL, "One, two, three,", options=SHORT)
    assert text.response and text.done, text
    assert "".join(part.response for part in client.generate(MODEL, "One, two,", options=SHORT, stream=True))


async def asynchronously():
    asking = ollama.AsyncClient(host=URL, headers={"authorization": f"Bearer {KEY}"})
    assert (await asking.chat(MODEL, ASK, options=SHORT)).message.content


def tools():
    reply = client.chat(TOOLED, ASK_WEATHER, tools=[TOOL], options={"num_predict": 40, "temperature": 0})
    call = reply.message.tool_calls[0].function
    assert (call.name, dict(call.arguments)) == ("weather", {"city": "Paris"}), reply


def embeddings():
    rows = client.embed(EMBEDDER, ["one", "two"]).embeddings
    assert len(rows) == 2 and rows[0] != rows[1], rows
    assert client.embeddings(EMBEDDER, "one").embedding, "the older way"


def lists():
    assert MODEL in [model.model for model in client.list().models]
    assert MODEL in [model.model for model in client.ps().models]
    assert client.show(MODEL).details


def errors():
    missing = raised(ollama.ResponseError, lambda: client.chat("gemma3-270", ASK))
    assert missing.status_code == 404 and MODEL in missing.error, missing
    wrong = ollama.Client(host=URL, headers={"authorization": f"Bearer {WRONG_KEY}"})
    assert raised(ollama.ResponseError, lambda: wrong.chat(MODEL, ASK)).status_code == 401
    assert raised(ollama.ResponseError, lambda: client.chat(BIG, ASK)).status_code == 503
    assert raised(ollama.ResponseError, lambda: client.chat(EMBEDDER, ASK)).status_code == 400
    seen = []
    died = raised(ollama.ResponseError, lambda: seen.extend(client.chat(DYING, ASK, stream=True)))
    assert seen and "ended" in died.error, (seen, died)
    assert raised(ollama.ResponseError, lambda: client.create("mine", from_=MODEL)).status_code == 501


def cancellation():
    stream = client.chat(SLOW, ASK, stream=True)
    next(stream)
    stream.close()
    until_free(SLOW)


run(chats, asynchronously, tools, embeddings, lists, errors, cancellation)
