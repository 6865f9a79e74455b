"""Proxy that makes a model without the ability to choose tools call a given one.

An agent sends its system prompt and tools, runs the tools that the model calls, and sends the results back. The proxy
adds `tool_choice` to the first request and restricts the schema of that tool to the given arguments. The requests after
it get the tool choice `none` and a schema for the final answer, because small models do not end long answers. All other fields, and all answers,
are passed on unchanged.
"""

import http.server
import json
import threading
import urllib.error
import urllib.request

# Final answer of the model, and its schema.
ANSWER = {"done": True}


def constant(value):
    """Returns the schema of an object with these values."""
    return {
        "type": "object",
        "properties": {name: {"const": field} for name, field in value.items()},
        "required": list(value),
        "additionalProperties": False,
    }


DROPPED_HEADERS = {"host", "content-length", "connection", "transfer-encoding", "accept-encoding"}


class Proxy:
    """HTTP proxy in a thread. A context manager."""

    def __init__(self, server, tool, arguments):
        self.server = server
        self.tool = tool
        self.arguments = arguments
        # One (method, path, sent body, status, start of an error's body) per request.
        self.requests = []
        self.has_forced = False
        self.lock = threading.Lock()

        class Handler(http.server.BaseHTTPRequestHandler):
            proxy = self
            do_GET = do_HEAD = do_POST = lambda handler: handler.proxy.forward(handler)
            log_message = lambda *_: None

        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}"

    def __enter__(self):
        threading.Thread(target=self.http.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.http.shutdown()
        self.http.server_close()

    def forward(self, handler):
        body = handler.rfile.read(int(handler.headers.get("content-length", 0))) or None
        if body:
            body = json.dumps(self.force(json.loads(body))).encode()
        headers = {name: value for name, value in handler.headers.items() if name.lower() not in DROPPED_HEADERS}
        request = urllib.request.Request(self.server + handler.path, body, headers, method=handler.command)
        error = ""
        try:
            answer = urllib.request.urlopen(request, timeout=600)
        except urllib.error.HTTPError as refusal:
            answer = refusal
        with answer:
            handler.send_response(answer.status)
            for name, value in answer.headers.items():
                if name.lower() not in DROPPED_HEADERS:
                    handler.send_header(name, value)
            handler.send_header("connection", "close")
            handler.end_headers()
            handler.close_connection = True
            try:
                while part := answer.read1(65536):
                    error = error or (part.decode()[:500] if answer.status >= 400 else "")
                    handler.wfile.write(part)
                    handler.wfile.flush()
            except (BrokenPipeError, ConnectionResetError):
                error = "the client disconnected"
        with self.lock:
            self.requests.append((handler.command, handler.path, body and json.loads(body), answer.status, error))

    def force(self, body):
        """Adds a call of the tool to the first request with it, and the final answer to the others."""
        with self.lock:
            tools = body.get("tools") or []
            tools = [tool for tool in tools if (tool.get("function") or tool).get("name") == self.tool]
            if not tools:
                return body
            is_first, self.has_forced = not self.has_forced, True
        (tool,) = tools
        if "function" in tool:
            dialect, fields, parameters = "chat", tool["function"], "parameters"
        elif "input_schema" in tool:
            dialect, fields, parameters = "messages", tool, "input_schema"
        else:
            dialect, fields, parameters = "responses", tool, "parameters"
        if is_first:
            fields[parameters] = constant(self.arguments)
            body.update(tool_choice(dialect, self.tool))
        else:
            body.update(answer_format(dialect, body))
        return body

    def refused(self):
        """Returns method, path, status and error of the requests that the server did not accept."""
        return [(method, path, status, error) for method, path, _, status, error in self.requests if status >= 300]


def tool_choice(dialect, name):
    if dialect == "chat":
        return {"tool_choice": {"type": "function", "function": {"name": name}}, "parallel_tool_calls": False}
    if dialect == "messages":
        return {"tool_choice": {"type": "tool", "name": name, "disable_parallel_tool_use": True}}
    return {"tool_choice": {"type": "function", "name": name}, "parallel_tool_calls": False}


def answer_format(dialect, body):
    schema = constant(ANSWER)
    if dialect == "chat":
        answer = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}
        return {"tool_choice": "none", "response_format": answer}
    if dialect == "messages":
        field, answer, choice = "output_config", {"type": "json_schema", "schema": schema}, {"type": "none"}
    else:
        field, answer, choice = "text", {"type": "json_schema", "name": "answer", "schema": schema}, "none"
    return {"tool_choice": choice, field: {**(body.get(field) or {}), "format": answer}}
