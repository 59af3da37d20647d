"""The OpenAI SDK as a client: whatever it does against an engine, it does against the gateway.

usage: openai_client.py BASE_URL MODEL KIND        KIND: vllm or llamacpp
"""

import sys

import openai

base_url, model, kind = sys.argv[1:4]
# Without retries a failure shows; with them it would hide.
client = openai.OpenAI(base_url=base_url + "/v1", api_key="unused", max_retries=0, timeout=120)
QUESTION = [{"role": "user", "content": "What is the capital of France? Answer in one sentence."}]
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather in a city",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}


def models():
    assert model in [entry.id for entry in client.models.list()]


def chat():
    raw = client.chat.completions.with_raw_response.create(
        model=model, messages=QUESTION, temperature=0, max_tokens=20
    )
    assert raw.headers["x-ridge-endpoint"].startswith("engine-"), raw.headers
    answer = raw.parse()
    assert answer.choices[0].message.content, answer
    assert answer.usage.completion_tokens > 0
    return answer.choices[0].message.content


def streamed(expected):
    pieces, usage, finish = [], None, None
    stream = client.chat.completions.create(
        model=model,
        messages=QUESTION,
        temperature=0,
        max_tokens=20,
        stream=True,
        stream_options={"include_usage": True},
    )
    for chunk in stream:
        usage = chunk.usage or usage
        for choice in chunk.choices:
            pieces.append(choice.delta.content or "")
            finish = choice.finish_reason or finish
    assert len(pieces) > 3, pieces
    assert "".join(pieces) == expected, ("".join(pieces), expected)
    assert usage.completion_tokens > 0 and finish in ("stop", "length")


def tools():
    answer = client.chat.completions.create(
        model=model,
        messages=[{"role": "user", "content": "What is the weather in Paris?"}],
        tools=[WEATHER],
        tool_choice="auto",
        temperature=0,
        max_tokens=30,
    )
    # A model this small may or may not call it; that the request is understood is what counts here.
    message = answer.choices[0].message
    assert message.content or message.tool_calls, answer


def logprobs():
    answer = client.chat.completions.create(
        model=model, messages=QUESTION, temperature=0, max_tokens=4, logprobs=True, top_logprobs=2
    )
    tokens = answer.choices[0].logprobs.content
    assert len(tokens) >= 1 and all(token.logprob <= 0 for token in tokens), tokens
    assert len(tokens[0].top_logprobs) == 2


def completion():
    answer = client.completions.create(model=model, prompt="Paris is the capital of", temperature=0, max_tokens=5)
    assert answer.choices[0].text, answer


def responses():
    answer = client.responses.create(
        model=model, input="Say hello.", max_output_tokens=16, temperature=0, store=False
    )
    assert answer.output, answer


def unknown_model():
    try:
        client.chat.completions.create(model="nobody", messages=QUESTION)
    except openai.NotFoundError as error:
        assert model in str(error), error
        assert error.code, error.body
    else:
        raise AssertionError("a model that nobody serves was answered")


def engine_error():
    try:
        client.chat.completions.create(model=model, messages=QUESTION, max_tokens=-5, temperature=-9)
    except (openai.BadRequestError, openai.UnprocessableEntityError) as error:
        assert error.body, error
    else:
        assert kind == "llamacpp", "an impossible request was answered"


def concurrent():
    from concurrent.futures import ThreadPoolExecutor

    def one(at):
        answer = client.chat.completions.create(
            model=model, messages=[{"role": "user", "content": f"Count from {at}."}], max_tokens=8, temperature=0
        )
        return answer.choices[0].message.content

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(one, range(16)))


models()
streamed(chat())
tools()
logprobs()
completion()
responses()
unknown_model()
engine_error()
concurrent()
print("openai", openai.__version__, "agrees")
