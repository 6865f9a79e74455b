// The context of a model: which messages a request has, and which to leave out when the context is full.

/** Messages that a request has: those from `start` on, or all if `start` is not among them. */
export function sent(nodes, start) {
  const at = nodes.findIndex((node) => node.id === start);
  return at > 0 ? nodes.slice(at) : nodes;
}

/** Whether an answer ended, or was refused, because the context of `size` tokens is full. */
export function isFull(node, size) {
  if (node.errorCode === "context_length_exceeded") return true;
  const { promptTokens, completionTokens } = node.stats ?? {};
  return node.finish === "length" && size > 0 && promptTokens + completionTokens >= size - 1;
}

const lengthOf = (node) => node.content.length + (node.reasoning?.length ?? 0) + JSON.stringify(node.toolCalls ?? "").length;

/**
 * Returns the first message to send, so that about half of the context becomes free: a message of the user
 * after the first one. Null if the conversation has only one.
 * `used`: number of tokens of `nodes`. The tokens of a message are estimated from its length.
 */
export function nextStart(nodes, used, size) {
  const total = nodes.reduce((sum, node) => sum + lengthOf(node), 0);
  let rest = total;
  let start = null;
  for (const [i, node] of nodes.entries()) {
    if (i > 0 && node.role === "user") {
      start = node.id;
      if (rest * used <= (size / 2) * total) break;
    }
    rest -= lengthOf(node);
  }
  return start;
}
