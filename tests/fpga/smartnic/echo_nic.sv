// A stand-in for smartnic_loopback with the same ports: frames to its MAC come back, IPv4 with both sides swapped.
//
// Other frames are ignored. hold_i stops the echo. Counter 5 counts aborts, 9 words of memory that hold their address,
// and 10 those of tables, each as often as one more than the number of its table.
module echo_nic (
  input  logic         clk_i,
  input  logic         rst_i,
  input  logic [47:0]  mac_i,
  input  logic [31:0]  address_i,
  input  logic [15:0]  port_i,
  input  logic [15:0]  cycles_per_us_i,
  input  logic [7:0]   preamble_i,
  input  logic [31:0]  limit_i,
  input  logic         sparsity_i,
  input  logic [7:0]   apart_i,
  input  logic [9:0]   loss_factor_i,
  input  logic         hold_i,
  input  logic         abort_i,
  input  logic         table_write_i,
  input  logic [1:0]   table_select_i,
  input  logic [11:0]  table_address_i,
  input  logic [127:0] table_data_i,
  input  logic         memory_write_i,
  input  logic [17:0]  memory_address_i,
  input  logic [255:0] memory_data_i,
  input  logic [7:0]   memory_latency_i,
  input  logic [15:0]  memory_refresh_every_i,
  input  logic [15:0]  memory_refresh_cycles_i,
  input  logic [3:0]   optics_delay_i,
  input  logic [3:0]   optics_shift_i,
  input  logic [7:0]   optics_apart_i,
  input  logic [8:0]   optics_gain_i,
  input  logic         optics_noise_i,
  input  logic [31:0]  optics_seed_i,
  input  logic         rx_valid_i,
  output logic         rx_ready_o,
  input  logic [511:0] rx_data_i,
  input  logic [63:0]  rx_keep_i,
  input  logic         rx_last_i,
  input  logic         rx_bad_i,
  output logic         tx_valid_o,
  input  logic         tx_ready_i,
  output logic [511:0] tx_data_o,
  output logic [63:0]  tx_keep_o,
  output logic         tx_last_o,
  input  logic [3:0]   counter_select_i,
  output logic [31:0]  counter_o,
  output logic         working_o,
  output logic         busy_o,
  output logic         start_o,
  output logic         heading_o,
  output logic         sending_o,
  output logic         open_o,
  output logic         partial_valid_o,
  output logic         result_valid_o,
  output logic [3:0]   layer_o,
  output logic [199:0] inference_counts_o,
  output logic [183:0] inference_targets_o,
  output logic [10:0]  inference_fires_o
);

  logic [31:0]  counters_q[16];
  logic         first_q, ours_q, ours, take;
  logic [47:0]  mac;
  logic [511:0] data;

  assign mac  = {rx_data_i[7:0], rx_data_i[15:8], rx_data_i[23:16], rx_data_i[31:24], rx_data_i[39:32], rx_data_i[47:40]};
  assign ours = first_q ? mac == mac_i : ours_q;

  always_comb begin
    data = rx_data_i;
    if (first_q) begin
      data[47:0]  = rx_data_i[95:48];
      data[95:48] = rx_data_i[47:0];
      if (rx_data_i[111:96] == 16'h0008) begin
        data[239:208] = rx_data_i[271:240];
        data[271:240] = rx_data_i[239:208];
        data[287:272] = rx_data_i[303:288];
        data[303:288] = rx_data_i[287:272];
      end
    end
  end

  assign rx_ready_o = (!tx_valid_o || tx_ready_i) && !hold_i;
  assign take       = rx_valid_i && rx_ready_o;

  always_ff @(posedge clk_i) begin
    if (rst_i) begin
      tx_valid_o <= 1'b0;
      first_q    <= 1'b1;
      for (int place = 0; place < 16; place++) counters_q[place] <= '0;
    end else begin
      if (take) begin
        first_q <= rx_last_i;
        ours_q  <= ours;
        if (ours) begin
          tx_data_o <= data;
          tx_keep_o <= rx_keep_i;
          tx_last_o <= rx_last_i;
        end
        if (rx_last_i) begin
          counters_q[0] <= counters_q[0] + 1;
          if (!ours) counters_q[1] <= counters_q[1] + 1;
          if (rx_bad_i) counters_q[2] <= counters_q[2] + 1;
        end
      end
      if (take && ours) tx_valid_o <= 1'b1;
      else if (tx_ready_i) tx_valid_o <= 1'b0;
      if (tx_valid_o && tx_ready_i && tx_last_o) counters_q[8] <= counters_q[8] + 1;
      if (memory_write_i && memory_data_i[17:0] == memory_address_i) counters_q[9] <= counters_q[9] + 1;
      if (table_write_i && table_data_i[11:0] == table_address_i) counters_q[10] <= counters_q[10] + {30'd0, table_select_i} + 1;
      if (abort_i) counters_q[5] <= counters_q[5] + 1;
    end
  end

  always_ff @(posedge clk_i) counter_o <= counters_q[counter_select_i];

  assign busy_o = tx_valid_o || !first_q;
  assign working_o = busy_o;
  assign {start_o, heading_o, sending_o, open_o, partial_valid_o, result_valid_o, layer_o} = {5'd0, tx_valid_o, 4'd5};
  assign {inference_counts_o, inference_targets_o, inference_fires_o} = '0;

endmodule
