#include "system.h"

namespace toolbox
{

bool Channel::send(std::string message)
{
	std::unique_lock<std::mutex> guard(lock_);
	room_.wait(guard, [this] { return closed_ || messages_.size() < capacity_; });
	if (closed_)
		return false;
	messages_.push_back(std::move(message));
	guard.unlock();
	more_.notify_one();
	return true;
}

std::optional<std::string> Channel::pop(std::unique_lock<std::mutex> &guard)
{
	if (messages_.empty())
		return std::nullopt;
	std::optional<std::string> message(std::move(messages_.front()));
	messages_.pop_front();
	guard.unlock();
	room_.notify_one();
	return message;
}

std::optional<std::string> Channel::receive()
{
	std::unique_lock<std::mutex> guard(lock_);
	more_.wait(guard, [this] { return closed_ || !messages_.empty(); });
	return pop(guard);
}

std::optional<std::string> Channel::receive_for(std::chrono::milliseconds timeout)
{
	std::unique_lock<std::mutex> guard(lock_);
	more_.wait_for(guard, timeout, [this] { return closed_ || !messages_.empty(); });
	return pop(guard);
}

void Channel::close()
{
	{
		std::lock_guard<std::mutex> guard(lock_);
		closed_ = true;
	}
	room_.notify_all();
	more_.notify_all();
}

} // namespace toolbox
