#pragma once
// The exchange that handlers get: a request, and the way to its answer.
#include <exception>
#include <memory>
#include <string>
#include <utility>

#include "http/answer.h"
#include "http/exchange.h"

namespace quire::http {

class ExchangeImpl : public Exchange {
 public:
  ExchangeImpl(Request request, std::unique_ptr<MemoryCharge> charge,
               std::shared_ptr<Answer> answer)
      : charge_(std::move(charge)), request_(std::move(request)), answer_(std::move(answer)) {}
  ~ExchangeImpl() override { answer_->abandon(); }

  const Request& request() const override { return request_; }
  std::string take_body() override { return std::move(request_.body); }
  std::unique_ptr<MemoryCharge> take_charge() override { return std::move(charge_); }
  void respond(Response response) override { answer_->respond(std::move(response)); }
  void begin_stream(Response head) override { answer_->begin_stream(std::move(head)); }
  void write(std::string piece) override { answer_->write(piece); }
  void finish() override { answer_->finish(); }
  std::size_t buffered() const override { return answer_->buffered(); }
  void on_drain(std::function<void()> callback) override { answer_->on_drain(std::move(callback)); }
  void on_closed(std::function<void()> callback) override {
    answer_->on_closed(std::move(callback));
  }
  bool closed() const override { return answer_->closed(); }
  void on_end(std::function<void(bool delivered)> callback) override {
    answer_->on_end(std::move(callback));
  }

 private:
  std::unique_ptr<MemoryCharge> charge_;  // ends after what it stands for
  Request request_;
  const std::shared_ptr<Answer> answer_;
};

}  // namespace quire::http
