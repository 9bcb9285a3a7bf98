/* sentencepiece_lib.cc -- calls the C++ library SentencePiece. No exception leaves a function. */
#include "sentencepiece_lib.h"
#include <cstdio>
#include <cstring>
#include <exception>
#include <new>
#include <sentencepiece_processor.h>
#include <sentencepiece_trainer.h>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

struct rd_spm {
    sentencepiece::SentencePieceProcessor processor;
};

namespace
{

void tell(char *why, size_t cap, const char *text)
{
    (void)snprintf(why, cap, "%s", text);
}

/* The caller's lines as the library wants them: value() is the present line. */
class Lines : public sentencepiece::SentenceIterator
{
  public:
    Lines(const char *(*next)(void *, size_t *), void *ctx) : next_(next), ctx_(ctx)
    {
        Lines::Next();
    }
    bool done() const override { return done_; }
    void Next() override
    {
        size_t n = 0;
        const char *line = next_(ctx_, &n);
        done_ = line == nullptr;
        if (!done_) line_.assign(line, n);
    }
    const std::string &value() const override { return line_; }
    sentencepiece::util::Status status() const override { return sentencepiece::util::Status(); }

  private:
    const char *(*next_)(void *, size_t *);
    void *ctx_;
    std::string line_;
    bool done_ = false;
};

} // namespace

rd_spm *rd_spm_open(const char *bytes, size_t n, char *why, size_t cap)
{
    rd_spm *m = nullptr;
    try {
        m = new rd_spm;
        const auto status = m->processor.LoadFromSerializedProto(std::string_view(bytes, n));
        if (status.ok() && m->processor.GetPieceSize() > 0) return m;
        tell(why, cap, status.ok() ? "it has no pieces" : status.error_message());
    } catch (const std::exception &e) {
        tell(why, cap, e.what());
    }
    delete m;
    return nullptr;
}

void rd_spm_close(rd_spm *m)
{
    delete m;
}

int rd_spm_size(const rd_spm *m)
{
    return m->processor.GetPieceSize();
}

const char *rd_spm_piece(const rd_spm *m, int id, size_t *n)
{
    const std::string &s = m->processor.IdToPiece(id);
    *n = s.size();
    return s.data();
}

int rd_spm_find(const rd_spm *m, const char *piece, size_t n)
{
    const std::string_view s(piece, n);
    const int id = m->processor.PieceToId(s);
    return id >= 0 && id < rd_spm_size(m) && m->processor.IdToPiece(id) == s ? id : -1;
}

bool rd_spm_segment(const rd_spm *m, const char *text, size_t n, rd_spm_text *put, void *ctx)
{
    try {
        std::vector<std::string> pieces;
        if (!m->processor.Encode(std::string_view(text, n), &pieces).ok()) return false;
        for (const std::string &s : pieces) put(ctx, s.data(), s.size());
        return true;
    } catch (const std::exception &) {
        return false;
    }
}

bool rd_spm_encode(const rd_spm *m, const char *text, size_t n, void (*put)(void *ctx, int id),
                   void *ctx)
{
    try {
        std::vector<int> ids;
        if (!m->processor.Encode(std::string_view(text, n), &ids).ok()) return false;
        for (const int id : ids) put(ctx, id);
        return true;
    } catch (const std::exception &) {
        return false;
    }
}

bool rd_spm_join(const rd_spm *m, const char *pieces, size_t n, rd_spm_text *put, void *ctx)
{
    try {
        std::vector<std::string_view> list;
        std::string text;
        for (size_t from = 0; from < n;) {
            const void *space = memchr(pieces + from, ' ', n - from);
            const size_t end = space ? (size_t)(static_cast<const char *>(space) - pieces) : n;
            if (end > from) list.emplace_back(pieces + from, end - from);
            from = end + 1;
        }
        if (!m->processor.Decode(list, &text).ok()) return false;
        put(ctx, text.data(), text.size());
        return true;
    } catch (const std::exception &) {
        return false;
    }
}

bool rd_spm_train(long long size, const char *(*next)(void *ctx, size_t *n), rd_spm_text *put,
                  void *ctx, char *why, size_t cap)
{
    try {
        Lines lines(next, ctx);
        std::string model;
        /* The caller has chosen the lines. Its kinds of pieces are the library's own. */
        const std::unordered_map<std::string, std::string> how = {
            {"vocab_size", std::to_string(size)},
            {"byte_fallback", "true"},
            {"minloglevel", "2"},
        };
        const auto status = sentencepiece::SentencePieceTrainer::Train(how, &lines, &model);
        if (status.ok()) {
            put(ctx, model.data(), model.size());
            return true;
        }
        tell(why, cap, status.error_message());
    } catch (const std::exception &e) {
        tell(why, cap, e.what());
    }
    return false;
}
