#!/usr/bin/env python3
"""Trains the byte-level BPE of the demo on the mixture. Needs tokenizers and jinja2.

  make_tokenizer.py OUT_DIRECTORY
"""
import json
import pathlib
import sys

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

import mix
import wire

VOCAB = 4096
# The pre-tokeniser of Qwen3.5 and Qwen3.6.
PATTERN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*"
           r"|\s*[\r\n]+|\s+(?!\S)|\s+")


def main():
    out = pathlib.Path(sys.argv[1])
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(PATTERN), behavior="isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=VOCAB - len(wire.SPECIAL), initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
                                  show_progress=False)
    texts = mix.corpus(11, 12000)
    strip = lambda text: [piece for piece in split_special(text) if piece]
    tokenizer.train_from_iterator((piece for text in texts for piece in strip(text)), trainer)
    tokenizer.add_tokens([AddedToken(token, special=token not in wire.NOT_SPECIAL, normalized=False) for token in wire.SPECIAL])
    assert tokenizer.get_vocab_size() == VOCAB, tokenizer.get_vocab_size()
    tokenizer.save(str(out / "tokenizer.json"), pretty=False)
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|im_end|>", "pad_token": "<|endoftext|>", "add_bos_token": False,
              "add_prefix_space": False, "model_max_length": 4096}
    (out / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n")


def split_special(text):
    import re
    return re.split("|".join(re.escape(token) for token in wire.SPECIAL), text)


if __name__ == "__main__":
    main()
