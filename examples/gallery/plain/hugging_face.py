"""A model of ``transformers``, a very small GPT-2 from a configuration, on batches that are dicts. Nothing is
downloaded; a token is a byte. The model computes its own loss.
"""

from pydoc_data.topics import topics

import torch
from torch.utils.data import DataLoader, Dataset
from transformers import GPT2Config, GPT2LMHeadModel

EPOCHS, BATCH, LENGTH = 3, 32, 32


class Windows(Dataset):
    """{"input_ids", "labels"}: pieces of a text."""

    def __init__(self, text):
        count = len(text) // LENGTH
        self.tokens = torch.frombuffer(bytearray(text), dtype=torch.uint8)[: count * LENGTH].long().view(count, LENGTH)

    def __len__(self):
        return len(self.tokens)

    def __getitem__(self, index):
        return {"input_ids": self.tokens[index], "labels": self.tokens[index]}


def datasets():
    text = "".join(topics[topic] for topic in sorted(topics)[:3]).encode("ascii", "replace")
    return Windows(text[: len(text) * 9 // 10]), Windows(text[len(text) * 9 // 10 :])


def network():
    size = {"vocab_size": 128, "n_positions": LENGTH, "n_embd": 48, "n_layer": 2, "n_head": 2}
    return GPT2LMHeadModel(GPT2Config(**size, bos_token_id=None, eos_token_id=None))


def held_out_loss(model, held_out):
    model.eval()
    with torch.no_grad():
        return model(input_ids=held_out.tokens, labels=held_out.tokens).loss.item()


def main():
    torch.manual_seed(0)
    model = network()
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    train_set, held_out = datasets()
    model.train()
    for _ in range(EPOCHS):
        for batch in DataLoader(train_set, BATCH, shuffle=True):
            optimizer.zero_grad()
            model(**batch).loss.backward()
            optimizer.step()
    print(f"held-out loss {held_out_loss(model, held_out):.3f}")


if __name__ == "__main__":
    main()
