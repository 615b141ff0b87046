// Runs the verilated smartNIC on Ethernet frames: queues of frames in and out, and the cycles between them.
//
// The wires are those of smartnic_loopback. A call runs as many cycles as it is told; frames keep their queues in between.
#include "Vtop.h"
#include <cstdint>
#include <cstring>
#include <deque>
#include <memory>
#include <vector>

namespace {

constexpr int kBeatBytes = 64;
constexpr int kCountWords = 7;    // of inference_counts_o
constexpr int kTargetWords = 6;   // of inference_targets_o
constexpr int kQuietCycles = 16;  // without work, before the NIC counts as idle

struct Frame {
  std::vector<uint8_t> bytes;
  bool bad;
  int64_t gap;     // cycles without a beat before the frame
  int64_t cycle;   // in which its last beat was taken
};

struct Nic {
  VerilatedContext context;
  std::unique_ptr<Vtop> top;
  std::deque<Frame> waiting, ready;
  std::deque<int64_t> taken;
  std::vector<uint8_t> part;         // of the frame that the NIC is sending
  size_t offset = 0;                 // of the next beat in the first waiting frame
  int64_t gap = -1;                  // cycles left before the first waiting frame, -1: not known yet
  int64_t cycle = 0;
  int64_t quiet = 0;
  uint32_t rx_pause = 0, tx_pause = 0;  // of 65536 cycles
  uint64_t random = 1;
  const char *fault = "";
  bool stalled = false;              // a beat was offered in the last cycle and not taken
  uint8_t beat[kBeatBytes];
  uint64_t keep = 0;
  bool last = false;
  uint32_t *trace = nullptr;
  uint32_t *counts = nullptr;         // of the count-action modules, their targets, and which fire
};

uint32_t draw(Nic *nic) {
  nic->random ^= nic->random << 13;
  nic->random ^= nic->random >> 7;
  nic->random ^= nic->random << 17;
  return nic->random >> 16 & 0xffff;
}

void offer(Nic *nic) {
  Vtop *top = nic->top.get();
  if (top->rx_valid_i) return;  // it stays until it is taken
  if (nic->waiting.empty()) return;
  const Frame &frame = nic->waiting.front();
  if (nic->offset == 0) {
    if (nic->gap < 0) nic->gap = frame.gap;
    if (nic->gap > 0) {
      --nic->gap;
      return;
    }
  }
  if (nic->rx_pause && draw(nic) < nic->rx_pause) return;
  const size_t left = frame.bytes.size() - nic->offset;
  const size_t count = left < kBeatBytes ? left : kBeatBytes;
  uint8_t bytes[kBeatBytes] = {};
  std::memcpy(bytes, frame.bytes.data() + nic->offset, count);
  std::memcpy(&top->rx_data_i[0], bytes, kBeatBytes);
  top->rx_keep_i = count == kBeatBytes ? ~0ULL : (1ULL << count) - 1;
  top->rx_last_i = left <= kBeatBytes;
  top->rx_bad_i = top->rx_last_i && frame.bad;
  top->rx_valid_i = 1;
}

void receive(Nic *nic) {
  Vtop *top = nic->top.get();
  if (!top->rx_valid_i || !top->rx_ready_o) return;
  if (top->rx_last_i) {
    nic->waiting.pop_front();
    nic->taken.push_back(nic->cycle);
    nic->offset = 0;
    nic->gap = -1;
  } else {
    nic->offset += kBeatBytes;
  }
}

void send(Nic *nic) {
  Vtop *top = nic->top.get();
  if (!top->tx_valid_o) {
    if (nic->stalled) nic->fault = "a beat at tx went away before it was taken";
    nic->stalled = false;
    return;
  }
  const uint64_t keep = top->tx_keep_o;
  const bool changed = std::memcmp(nic->beat, &top->tx_data_o[0], kBeatBytes) || nic->keep != keep ||
                       nic->last != static_cast<bool>(top->tx_last_o);
  if (nic->stalled && changed) nic->fault = "a beat at tx changed before it was taken";
  if (keep == 0 || (keep & (keep + 1)) || (!top->tx_last_o && ~keep)) nic->fault = "a beat at tx has a hole in its keep";
  if (top->tx_ready_i) {
    const uint8_t *data = reinterpret_cast<const uint8_t *>(&top->tx_data_o[0]);
    nic->part.insert(nic->part.end(), data, data + __builtin_popcountll(keep));
    if (top->tx_last_o) {
      nic->ready.push_back({std::move(nic->part), false, 0, nic->cycle});
      nic->part.clear();
    }
  }
  nic->stalled = !top->tx_ready_i;
  if (nic->stalled) {
    std::memcpy(nic->beat, &top->tx_data_o[0], kBeatBytes);
    nic->keep = keep;
    nic->last = top->tx_last_o;
  }
}

uint32_t signals(const Vtop *top) {
  const uint32_t bits[] = {
      top->start_o,    top->heading_o,  top->sending_o,  top->open_o,     top->partial_valid_o, top->result_valid_o, top->busy_o,
      top->rx_valid_i, top->rx_ready_o, top->rx_last_i, top->tx_valid_o, top->tx_ready_i,      top->tx_last_o};
  uint32_t word = static_cast<uint32_t>(top->layer_o) << 16;
  for (int place = 0; place < static_cast<int>(sizeof(bits) / sizeof(bits[0])); ++place) word |= bits[place] << place;
  return word;
}

void step(Nic *nic) {
  Vtop *top = nic->top.get();
  offer(nic);
  top->tx_ready_i = !nic->tx_pause || draw(nic) >= nic->tx_pause;
  top->clk_i = 0;
  top->eval();
  receive(nic);
  const bool taken = top->rx_valid_i && top->rx_ready_o;
  send(nic);
  const bool work = top->busy_o || top->rx_valid_i || top->tx_valid_o || !nic->waiting.empty() || !nic->part.empty();
  nic->quiet = work ? 0 : nic->quiet + 1;
  if (nic->trace) {
    *nic->trace++ = signals(top);
    std::memcpy(nic->counts, &top->inference_counts_o[0], 4 * kCountWords);
    std::memcpy(nic->counts + kCountWords, &top->inference_targets_o[0], 4 * kTargetWords);
    nic->counts[kCountWords + kTargetWords] = top->inference_fires_o;
    nic->counts += kCountWords + kTargetWords + 1;
  }
  top->clk_i = 1;
  top->eval();
  // After the edge, so that the NIC sees the beat there; the next one shows before the next edge.
  if (taken) top->rx_valid_i = 0;
  ++nic->cycle;
}

Nic *nic_of(void *pointer) { return static_cast<Nic *>(pointer); }

}  // namespace

extern "C" {

void *nic_new() {
  Nic *nic = new Nic;
  nic->top = std::make_unique<Vtop>(&nic->context);
  return nic;
}

void nic_delete(void *pointer) {
  nic_of(pointer)->top->final();
  delete nic_of(pointer);
}

// Set an input by its name without the ending _i. Return 0 for a name that is not known.
int nic_set(void *pointer, const char *name, uint64_t value) {
  Vtop *top = nic_of(pointer)->top.get();
#define INPUT(port) \
  if (!std::strcmp(name, #port)) return top->port##_i = value, 1
  INPUT(rst);
  INPUT(mac);
  INPUT(address);
  INPUT(port);
  INPUT(cycles_per_us);
  INPUT(preamble);
  INPUT(limit);
  INPUT(sparsity);
  INPUT(hold);
  INPUT(abort);
  INPUT(memory_latency);
  INPUT(memory_refresh_every);
  INPUT(memory_refresh_cycles);
  INPUT(optics_delay);
  INPUT(optics_shift);
  INPUT(optics_gain);
  INPUT(optics_apart);
  INPUT(apart);
  INPUT(loss_factor);
  INPUT(optics_noise);
  INPUT(optics_seed);
#undef INPUT
  return 0;
}

// Pause each cycle with a probability, in units of 1/65536.
void nic_pause(void *pointer, uint32_t rx, uint32_t tx, uint64_t seed) {
  Nic *nic = nic_of(pointer);
  nic->rx_pause = rx;
  nic->tx_pause = tx;
  nic->random = seed * 0x9e3779b97f4a7c15ULL | 1;
}

void nic_run(void *pointer, int64_t cycles, uint32_t *trace, uint32_t *counts) {
  Nic *nic = nic_of(pointer);
  nic->trace = trace;
  nic->counts = counts;
  for (int64_t count = 0; count < cycles; ++count) step(nic);
  nic->trace = nullptr;
}

// Return 1 if the NIC is idle, 0 if it still has work after `limit` cycles.
int nic_run_until_idle(void *pointer, int64_t limit) {
  Nic *nic = nic_of(pointer);
  nic->quiet = 0;
  for (int64_t count = 0; count < limit; ++count) {
    step(nic);
    if (nic->quiet == kQuietCycles) return 1;
  }
  return 0;
}

// Return 1 when no request has begun that has not ended, 0 after `limit` cycles.
int nic_run_until_unoccupied(void *pointer, int64_t limit) {
  Nic *nic = nic_of(pointer);
  for (int64_t count = 0; count < limit; ++count) {
    step(nic);
    if (!nic->top->working_o) return 1;
  }
  return 0;
}

// Reset the NIC. Frames that wait or are on their way are lost; those that it has sent stay.
void nic_reset(void *pointer) {
  Nic *nic = nic_of(pointer);
  Vtop *top = nic->top.get();
  nic->waiting.clear();
  nic->part.clear();
  nic->offset = 0;
  nic->gap = -1;
  top->rx_valid_i = 0;
  top->rst_i = 1;
  for (int count = 0; count < 4; ++count) {
    nic->stalled = false;
    step(nic);
  }
  nic->part.clear();
  nic->stalled = false;
  top->rst_i = 0;
}

void nic_send(void *pointer, const uint8_t *bytes, int64_t count, int bad, int64_t gap) {
  nic_of(pointer)->waiting.push_back({std::vector<uint8_t>(bytes, bytes + count), bad != 0, gap, 0});
}

// Return the bytes of the oldest frame that the NIC has sent, -1 if there is none.
int64_t nic_size(void *pointer) {
  const Nic *nic = nic_of(pointer);
  return nic->ready.empty() ? -1 : static_cast<int64_t>(nic->ready.front().bytes.size());
}

// Take that frame, and return the cycle of its last beat.
int64_t nic_receive(void *pointer, uint8_t *bytes) {
  Nic *nic = nic_of(pointer);
  const Frame frame = std::move(nic->ready.front());
  nic->ready.pop_front();
  std::memcpy(bytes, frame.bytes.data(), frame.bytes.size());
  return frame.cycle;
}

// Return the cycle in which the NIC took the last beat of the next frame that was sent to it, -1 if there is none.
int64_t nic_taken(void *pointer) {
  Nic *nic = nic_of(pointer);
  if (nic->taken.empty()) return -1;
  const int64_t cycle = nic->taken.front();
  nic->taken.pop_front();
  return cycle;
}

int64_t nic_waiting(void *pointer) { return nic_of(pointer)->waiting.size(); }

int64_t nic_cycle(void *pointer) { return nic_of(pointer)->cycle; }

const char *nic_fault(void *pointer) { return nic_of(pointer)->fault; }

void nic_write_memory(void *pointer, int64_t address, int64_t words, const uint64_t *data) {
  Nic *nic = nic_of(pointer);
  Vtop *top = nic->top.get();
  for (int64_t word = 0; word < words; ++word) {
    top->memory_write_i = 1;
    top->memory_address_i = address + word;
    std::memcpy(&top->memory_data_i[0], data + 4 * word, 32);
    step(nic);
  }
  top->memory_write_i = 0;
}

void nic_write_table(void *pointer, int select, int64_t address, int64_t words, const uint64_t *data) {
  Nic *nic = nic_of(pointer);
  Vtop *top = nic->top.get();
  for (int64_t word = 0; word < words; ++word) {
    top->table_write_i = 1;
    top->table_select_i = select;
    top->table_address_i = address + word;
    std::memcpy(&top->table_data_i[0], data + 2 * word, 16);
    step(nic);
  }
  top->table_write_i = 0;
}

// Two cycles for each counter, as it may come from a register.
void nic_counters(void *pointer, int count, uint32_t *values) {
  Nic *nic = nic_of(pointer);
  Vtop *top = nic->top.get();
  for (int place = 0; place < count; ++place) {
    top->counter_select_i = place;
    step(nic);
    step(nic);
    top->eval();
    values[place] = top->counter_o;
  }
}

}
