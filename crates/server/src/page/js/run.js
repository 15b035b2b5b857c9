// One answer on its way: takes the chunks of a stream into a turn and measures.

/** Calls that one answer may have; a stream that names more is none of ours. */
const RUN_CALLS_MAX = CALLS_MAX;

class Run {
  constructor(chat, turn) {
    this.chat = chat;
    this.turn = turn;
    this.controller = new AbortController();
    this.started = performance.now();
    this.firstAt = null;
    this.lastAt = null;
    this.thinkingSince = null;
    /** A chunk is a token, mostly; the server's own count comes with the last one. */
    this.pieces = 0;
    /** The user leaves the page. */
    this.isLeft = false;
    /** Tokens of the conversation before this answer, as far as they are known. */
    this.contextBefore = 0;
  }

  async pull(body, key, onProgress) {
    const { turn } = this;
    try {
      for await (const chunk of streamChat(body, key, this.controller.signal)) {
        this.take(chunk);
        onProgress();
      }
      turn.finish ??= "stop";
    } catch (error) {
      if (error.name === "AbortError" || this.controller.signal.aborted || this.isLeft) turn.finish = "stopped";
      else {
        turn.finish = "failed";
        const known = error instanceof ApiFailure;
        turn.failure = known ? { kind: error.kind, title: error.title, detail: error.detail }
          : { kind: "page", title: "The page could not go on", detail: String(error?.message ?? error) };
      }
    }
    this.endThinking();
    this.measure();
  }

  take(chunk) {
    const choice = Array.isArray(chunk.choices) ? chunk.choices[0] : null;
    const { turn } = this;
    const delta = choice?.delta ?? {};
    const before = this.pieces;
    if (typeof delta.reasoning_content === "string" && delta.reasoning_content) {
      this.thinkingSince ??= performance.now();
      turn.reasoning += delta.reasoning_content;
      this.pieces += 1;
    }
    if (typeof delta.content === "string" && delta.content) {
      this.endThinking();
      turn.content += delta.content;
      this.pieces += 1;
    }
    if (Array.isArray(delta.tool_calls)) for (const piece of delta.tool_calls) this.takeCall(piece);
    if (this.pieces > before) {
      this.lastAt = performance.now();
      this.firstAt ??= this.lastAt;
    }
    // Only a stream that ends well makes this the truth; see `pull`.
    if (typeof choice?.finish_reason === "string") this.reason = choice.finish_reason;
    if (chunk.usage) this.usage = chunk.usage;
    if (chunk.timings) this.timings = chunk.timings;
  }

  takeCall(piece) {
    if (typeof piece !== "object" || piece === null) return;
    const { calls } = this.turn;
    const index = piece.index ?? 0;
    if (!Number.isInteger(index) || index < 0 || index >= RUN_CALLS_MAX) return;
    this.endThinking();
    while (calls.length <= index) calls.push({ id: "", name: "", arguments: "" });
    const call = calls[index];
    if (typeof piece.id === "string") call.id = piece.id.slice(0, NAME_CHARS_MAX);
    if (typeof piece.function?.name === "string") call.name += piece.function.name.slice(0, NAME_CHARS_MAX);
    if (typeof piece.function?.arguments === "string") call.arguments += piece.function.arguments;
    this.pieces += 1;
  }

  endThinking() {
    if (this.thinkingSince !== null && this.turn.thoughtMs === null) {
      this.turn.thoughtMs = Math.round((this.lastAt ?? performance.now()) - this.thinkingSince);
    }
  }

  /** Tokens a second so far, or null before there are enough to say. */
  rate() {
    if (this.pieces < 3 || this.lastAt <= this.firstAt) return null;
    return ((this.pieces - 1) * 1_000) / (this.lastAt - this.firstAt);
  }

  measure() {
    const { turn, usage, timings } = this;
    if (turn.finish === "stop" && ["length", "tool_calls"].includes(this.reason)) turn.finish = this.reason;
    if (this.pieces === 0 && !usage) return;
    const number = (...values) => values.find((value) => Number.isFinite(value) && value >= 0) ?? null;
    const rate = timings?.predicted_per_second > 0 ? timings.predicted_per_second : this.rate();
    turn.stats = {
      promptTokens: number(usage?.prompt_tokens),
      cachedTokens: number(usage?.prompt_tokens_details?.cached_tokens),
      answerTokens: number(usage?.completion_tokens, timings?.predicted_n, this.pieces),
      tokensPerSecond: rate === null ? null : Math.round(rate * 100) / 100,
      firstMs: this.firstAt === null ? null : Math.round(this.firstAt - this.started),
    };
  }
}
