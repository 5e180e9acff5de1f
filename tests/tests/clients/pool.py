"""What the scripts share: where the pool is, what it holds, and the claims that are made of every client.

The test beside this starts the pool and says in `POOL`, as JSON, where it is: `url`, `keys` by name, and `gate`, the file
whose being lets the model `slow` go on.
"""
import asyncio
import inspect
import json
import os
import sys
import time
import urllib.request

POOL = json.loads(os.environ["POOL"])
URL = POOL["url"]
KEY = POOL["keys"]["all"]
# Each answers 429 to a second request at a time.
SINGLE_KEY = POOL["keys"]["single"]
# Not for the default model.
NARROW_KEY = POOL["keys"]["narrow"]
READER_KEY = POOL["keys"]["reader"]
WRONG_KEY = "mp_" + "0" * 64

# The real engine's: the default model, the same with a template that knows tools, and a generated one that embeds.
MODEL = POOL["model"]
TOOLED, EMBEDDER = "tooled", "embedder"
# Fake engines': one slot and a stream that waits at its tenth token; one that needs more than there is; one that cannot be
# loaded; one that dies at its fifth token.
SLOW, BIG, BROKEN, DYING = "slow", "big", "broken", "dying"

ASK = [{"role": "user", "content": "Count from one to five."}]
ASK_WEATHER = [{"role": "user", "content": "What is the weather in Paris?"}]
WEATHER = {
    "type": "object",
    "properties": {"city": {"type": "string", "enum": ["Paris", "Rome"]}},
    "required": ["city"],
}
# The least that `Retry-After` says, in whole seconds, and more than any of these clients waits by itself at first.
SECOND = 1.0


def raised(kind, call):
    """What `call` raises, which must be a `kind`."""
    try:
        call()
    except Exception as error:  # noqa: BLE001: whatever it is, it is looked at
        assert isinstance(error, kind), f"{type(error).__mro__} instead of {kind}: {error}"
        return error
    raise AssertionError(f"no {kind}")


def engine(model):
    """What the pool says of a model's engine."""
    request = urllib.request.Request(f"{URL}/api/motorpool/v1/status", headers={"authorization": f"Bearer {KEY}"})
    with urllib.request.urlopen(request) as answer:
        engines = json.load(answer)["engines"]
    return next(one for one in engines if one["key"].split(":")[1] == model)


def until_free(model):
    """Waits until nobody has a lease of a model's engine."""
    for _ in range(300):
        if not engine(model).get("leases"):
            return
        time.sleep(0.02)
    raise AssertionError(f"still held: {engine(model)}")


class Statuses(list):
    """The status of each response, and when it came: a hook of httpx and of what is like it."""

    def __call__(self, response):
        self.append((response.status_code, time.monotonic()))

    def codes(self):
        return [code for code, _ in self]

    def pause(self):
        """From the first response to the second, in seconds."""
        return self[1][1] - self[0][1]


def run(*claims):
    """Holds every claim, or those that the command line names, and says which one failed."""
    for claim in claims:
        if sys.argv[1:] and claim.__name__ not in sys.argv[1:]:
            continue
        begun = time.monotonic()
        try:
            asyncio.run(claim()) if inspect.iscoroutinefunction(claim) else claim()
        except Exception as error:
            raise AssertionError(f"{claim.__name__} does not hold") from error
        print(f"{claim.__name__}: {time.monotonic() - begun:.1f} s")
