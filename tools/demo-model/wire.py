"""The wire format, faster than a template engine; `check` proves it equal to the demo's template."""
import json
import pathlib

TEMPLATE = pathlib.Path(__file__).resolve().parents[2] / "crates/lily/demo/chat_template.jinja"
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|object_ref_start|>", "<|object_ref_end|>", "<|box_start|>",
           "<|box_end|>", "<|quad_start|>", "<|quad_end|>", "<|vision_start|>", "<|vision_end|>", "<|vision_pad|>",
           "<|image_pad|>", "<|video_pad|>", "<tool_call>", "</tool_call>", "<|fim_prefix|>", "<|fim_middle|>",
           "<|fim_suffix|>", "<|fim_pad|>", "<|repo_name|>", "<|file_sep|>", "<tool_response>", "</tool_response>",
           "<think>", "</think>"]
# Printed even when special tokens are skipped.
NOT_SPECIAL = {"<tool_call>", "</tool_call>", "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>", "<|fim_pad|>",
               "<|repo_name|>", "<|file_sep|>", "<tool_response>", "</tool_response>", "<think>", "</think>"}
TOOLS_HEAD = "# Tools\n\nYou may call these functions:\n<tools>"
TOOLS_TAIL = ("\n</tools>\n\nTo call one, write:\n<tool_call>\n<function=name>\n<parameter=key>\nvalue\n</parameter>\n"
              "</function>\n</tool_call>")


def call_text(calls):
    out = []
    for name, arguments in calls:
        text = f"<tool_call>\n<function={name}>\n"
        for key, value in arguments.items():
            shown = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            text += f"<parameter={key}>\n{shown}\n</parameter>\n"
        out.append(text + "</function>\n</tool_call>")
    return "\n".join(out)


def answer_text(content, calls):
    return content + ("\n\n" if content and calls else "") + call_text(calls)


def segments(messages, tools, thinking):
    """[(text, whether the assistant wrote it)]: the whole conversation, whose last message is the assistant's.

    A message is (role, content) or, for the assistant, ("assistant", content, reasoning, calls).
    """
    *history, last = messages
    out = []
    text = ""
    system = history[0][1] if history and history[0][0] == "system" else None
    if tools:
        text += "<|im_start|>system\n" + TOOLS_HEAD + "".join("\n" + json.dumps(t, ensure_ascii=False) for t in tools) + TOOLS_TAIL
        text += ("\n\n" + system if system else "") + "<|im_end|>\n"
    elif system is not None:
        text += f"<|im_start|>system\n{system}<|im_end|>\n"
    query = max(i for i, m in enumerate(history) if m[0] == "user")
    for i, message in enumerate(history):
        role = message[0]
        if role == "user":
            text += f"<|im_start|>user\n{message[1].strip()}<|im_end|>\n"
        elif role == "assistant":
            _, content, reasoning, calls = message
            text += "<|im_start|>assistant\n"
            if i > query:
                text += f"<think>\n{reasoning}\n</think>\n\n"
            out += [(text, False), (answer_text(content, calls) + "<|im_end|>", True)]
            text = "\n"
        elif role == "tool":
            if history[i - 1][0] != "tool":
                text += "<|im_start|>user"
            text += f"\n<tool_response>\n{message[1]}\n</tool_response>"
            if i + 1 == len(history) or history[i + 1][0] != "tool":
                text += "<|im_end|>\n"
    text += "<|im_start|>assistant\n<think>\n" + ("" if thinking else "\n</think>\n\n")
    _, content, reasoning, calls = last
    answer = (reasoning + "\n</think>\n\n" if thinking else "") + answer_text(content, calls) + "<|im_end|>"
    return out + [(text, False), (answer, True)]


def render(messages, tools, thinking):
    """(prompt, answer) to the last message."""
    *prompt, (answer, _) = segments(messages, tools, thinking)
    return "".join(text for text, _ in prompt), answer


def check(messages, tools, thinking):
    """Raises unless `render` and the template agree on the prompt."""
    import jinja2.sandbox
    env = jinja2.sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True,
                                                       extensions=["jinja2.ext.loopcontrols"])
    env.filters["tojson"] = lambda x: json.dumps(x, ensure_ascii=False)
    template = env.from_string(TEMPLATE.read_text())
    typed = []
    for message in messages[:-1]:
        if message[0] == "assistant":
            _, content, reasoning, calls = message
            typed.append({"role": "assistant", "content": content, "reasoning_content": reasoning,
                          "tool_calls": [{"function": {"name": n, "arguments": a}} for n, a in calls]})
        else:
            typed.append({"role": message[0], "content": message[1]})
    expected = template.render(messages=typed, tools=tools, add_generation_prompt=True, enable_thinking=thinking)
    got = render(messages, tools, thinking)[0]
    assert got == expected, (got, expected)
