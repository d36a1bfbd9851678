"""An encoder over packed sequences and a decoder that attends to it, step by step."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.programs.program import Program


def seq2seq(torch: Any, nn: Any, F: Any) -> Program:  # noqa: N803
    rnn = nn.utils.rnn

    class Encoder(nn.Module):
        def __init__(self, vocab, emb, hid):
            super().__init__()
            self.embedding = nn.Embedding(vocab, emb, padding_idx=0)
            self.rnn = nn.LSTM(emb, hid, num_layers=2, bidirectional=True, batch_first=True, dropout=0.0)
            self.fc_h = nn.Linear(hid * 2, hid)
            self.fc_c = nn.Linear(hid * 2, hid)

        def forward(self, src, lengths):
            packed = rnn.pack_padded_sequence(self.embedding(src), lengths, batch_first=True, enforce_sorted=False)
            out, (h, c) = self.rnn(packed)
            out, _ = rnn.pad_packed_sequence(out, batch_first=True)
            h = torch.tanh(self.fc_h(torch.cat((h[-2], h[-1]), dim=1)))
            c = torch.tanh(self.fc_c(torch.cat((c[-2], c[-1]), dim=1)))
            return out, (h, c)

    class Attention(nn.Module):
        def __init__(self, enc, dec):
            super().__init__()
            self.attn = nn.Linear(enc + dec, dec)
            self.v = nn.Linear(dec, 1, bias=False)

        def forward(self, hidden, enc_out, mask):
            L = enc_out.shape[1]
            hidden = hidden.unsqueeze(1).repeat(1, L, 1)
            energy = torch.tanh(self.attn(torch.cat((hidden, enc_out), dim=2)))
            a = self.v(energy).squeeze(2).masked_fill(~mask, -1e10)
            return torch.softmax(a, dim=1)

    class Seq2Seq(nn.Module):
        def __init__(self, vocab=12, emb=6, hid=8):
            super().__init__()
            self.encoder = Encoder(vocab, emb, hid)
            self.attention = Attention(hid * 2, hid)
            self.embedding = nn.Embedding(vocab, emb)
            self.cell = nn.LSTMCell(emb + hid * 2, hid)
            self.out = nn.Linear(hid * 3 + emb, vocab)
            self.vocab = vocab

        def forward(self, src, lengths, trg):
            B, T = trg.shape
            outputs = torch.zeros(T, B, self.vocab)
            enc, (h, c) = self.encoder(src, lengths)
            mask = (src != 0)[:, : enc.shape[1]]
            x = trg[:, 0]
            for t in range(1, T):
                e = self.embedding(x)
                a = self.attention(h, enc, mask)
                w = torch.bmm(a.unsqueeze(1), enc).squeeze(1)
                h, c = self.cell(torch.cat((e, w), dim=1), (h, c))
                pred = self.out(torch.cat((h, w, e), dim=1))
                outputs[t] = pred
                top1 = pred.argmax(1)
                x = trg[:, t] if t % 2 else top1
            return outputs

    model = Seq2Seq()
    for _name, param in model.named_parameters():
        nn.init.uniform_(param.data, -0.08, 0.08)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    criterion = nn.CrossEntropyLoss(ignore_index=0)

    def step(src, lengths, trg):
        optimizer.zero_grad()
        out = model(src, lengths, trg)
        V = out.shape[-1]
        loss = criterion(out[1:].reshape(-1, V), trg.t()[1:].reshape(-1))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1)
        optimizer.step()
        return loss.item()

    rng = np.random.default_rng(0)
    data = []
    for _ in range(3):
        n = np.array([3, 6, 4])
        src = rng.integers(1, 12, (3, 6))
        src[np.arange(6)[None] >= n[:, None]] = 0
        trg = rng.integers(1, 12, (3, 5))
        trg[0, 4:] = 0
        data.append((src, n, trg))
    return model, step, data
