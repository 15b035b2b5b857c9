"""Instructor: typed answers by a named tool, by schema, and streamed."""

import importlib.metadata
import sys

import instructor
import openai
from pydantic import BaseModel
from suite import call, check, main, rule, scripted


class User(BaseModel):
    name: str
    age: int


ADA = {"name": "Ada", "age": 36}
RULES = (
    # What Instructor calls the tool when it streams partial objects.
    rule(call("PartialUser", name="Ada", age=36), has='"PartialUser"', think="A name and an age."),
    rule(call("User", name="Ada", age=36), has=["# Tools", '"User"'], think="A name and an age."),
    rule('{"name":"Ada","age":36}', has="Ada is 36", think="A name and an age."),
)
MESSAGES = [{"role": "user", "content": "Ada is 36 years old."}]


def client(url, mode):
    return instructor.from_openai(openai.OpenAI(base_url=f"{url}/v1", api_key="any", max_retries=0), mode=mode)


def ask(url, mode):
    create = client(url, mode).chat.completions.create
    user = create(model="demo", messages=MESSAGES, response_model=User, max_retries=0)
    # The answer is of a class that instructor derives from ours.
    return isinstance(user, User) and user.model_dump()


@check
def a_named_tool():
    with scripted(*RULES) as url:
        assert ask(url, instructor.Mode.TOOLS) == ADA


@check
def schemas_and_json():
    with scripted(*RULES) as url:
        for mode in (instructor.Mode.JSON_SCHEMA, instructor.Mode.JSON):
            assert ask(url, mode) == ADA, mode


@check
def partial_objects():
    with scripted(*RULES) as url:
        stream = client(url, instructor.Mode.TOOLS).chat.completions.create_partial(
            model="demo", messages=MESSAGES, response_model=User, max_retries=0)
        objects = list(stream)
        assert objects[-1].model_dump() == ADA, objects


if __name__ == "__main__":
    sys.exit(main("instructor", importlib.metadata.version("instructor")))
