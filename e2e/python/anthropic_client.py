"""The Anthropic SDK as a client of the gateway.

usage: anthropic_client.py BASE_URL MODEL
"""

import sys

import anthropic

base_url, model = sys.argv[1:3]
client = anthropic.Anthropic(base_url=base_url, api_key="unused", max_retries=0, timeout=120)
QUESTION = [{"role": "user", "content": "What is the capital of France? Answer in one sentence."}]
WEATHER = {
    "name": "get_weather",
    "description": "The weather in a city",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}


def message():
    answer = client.messages.create(model=model, max_tokens=20, messages=QUESTION, extra_body={"temperature": 0})
    assert answer.content[0].text, answer
    assert answer.usage.output_tokens > 0
    return answer.content[0].text


def streamed(expected):
    with client.messages.stream(
        model=model, max_tokens=20, messages=QUESTION, extra_body={"temperature": 0}
    ) as stream:
        pieces = list(stream.text_stream)
        final = stream.get_final_message()
    assert len(pieces) > 3, pieces
    assert "".join(pieces) == expected, ("".join(pieces), expected)
    assert final.stop_reason in ("end_turn", "max_tokens"), final


def tools():
    answer = client.messages.create(
        model=model,
        max_tokens=30,
        system="You are terse.",
        messages=[{"role": "user", "content": "What is the weather in Paris?"}],
        tools=[WEATHER],
    )
    assert answer.content, answer


def count_tokens():
    assert client.messages.count_tokens(model=model, messages=QUESTION).input_tokens > 5


def unknown_model():
    try:
        client.messages.create(model="nobody", max_tokens=5, messages=QUESTION)
    except anthropic.NotFoundError as error:
        assert error.body["type"] == "error" and error.body["error"]["type"] == "not_found_error", error.body
        assert model in error.body["error"]["message"], error.body
    else:
        raise AssertionError("a model that nobody serves was answered")


def bad_request():
    try:
        client.messages.create(model=model, max_tokens=5, messages=[{"role": "nobody", "content": "x"}])
    except (anthropic.BadRequestError, anthropic.UnprocessableEntityError) as error:
        assert error.body, error
    else:
        raise AssertionError("a message of an unknown role was answered")


streamed(message())
tools()
count_tokens()
unknown_model()
bad_request()
print("anthropic", anthropic.__version__, "agrees")
