"""The built-in offline model `transom/demo`: rules in place of a network, for a first look, tests and benchmarks.

It knows the messages it is sent and nothing else, so a fact that fell out of the window is honestly not known.
The same request gets the same bytes. It says what it is when asked, and in its first answer.

1. A summary request (the system message begins with `You maintain the running summary`) is answered with an extract:
   sentences of the transcript that hold numbers, names, decisions or commitments, within the requested tokens.
2. Orphan tool results and unanswered tool calls are refused with 400, as OpenAI refuses them.
3. What exceeds the window (8192 tokens unless `model_info.max_input_tokens` says otherwise) is refused with OpenAI's
   `context_length_exceeded`.
4. Offered tools are called when the last user message asks for them: by name (`call get_weather with city=Paris`), or
   with a request that shares words with the tool's name (`What is the weather in Paris and Rome?`). Several in one
   sentence are parallel; `then` and `;` chain them; `call ping 12 times` makes a chain of twelve.
   `tool_choice` and `parallel_tool_calls` are honoured. After the last result the answer tells what the results said.
5. `My X is Y` is noted, `What is my X?` is looked up in what was sent, newest first.
6. `Write 200 words` gives a text of that length; anything else is answered with what was said and how much was shown.
"""

from transom.proxy.upstream.demo.upstream import DEFAULT_WINDOW, DemoUpstream

__all__ = ["DEFAULT_WINDOW", "DemoUpstream"]
