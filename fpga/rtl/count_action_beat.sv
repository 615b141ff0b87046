// One beat on its way out: filled by a fire, kept until it is taken (R7).
//
// While the beat is not taken the module is stalled, hence fire_i comes only when the register is
// free or becomes so in this cycle. The data stay readable after the beat has left.
module count_action_beat #(
  parameter int Width = 16
) (
  input  logic             clk_i,
  input  logic             rst_i,
  input  logic             fire_i,
  input  logic [Width-1:0] data_i,
  input  logic             ready_i,
  output logic             valid_o,
  output logic [Width-1:0] data_o,
  output logic             stalled_o
);

  // A fire comes late in its cycle: it does not reach more flip-flops than these in the rest of it.
  localparam int Reach = 128;

  logic             valid_q;
  logic [Width-1:0] data_q;

  always_ff @(posedge clk_i) begin
    if (rst_i) valid_q <= 1'b0;
    else valid_q <= fire_i || stalled_o;
  end

  if (Width > Reach) begin : gen_wide
    // All data are taken in every cycle, and the next cycle selects those of a fire.
    logic             fired_q;
    logic [Width-1:0] offered_q;

    always_ff @(posedge clk_i) begin
      offered_q <= data_i;
      if (rst_i) begin
        fired_q <= 1'b0;
        data_q  <= '0;
      end else begin
        fired_q <= fire_i;
        data_q  <= data_o;
      end
    end

    assign data_o = fired_q ? offered_q : data_q;
  end else begin : gen_narrow
    always_ff @(posedge clk_i) begin
      if (rst_i) data_q <= '0;
      else if (fire_i) data_q <= data_i;
    end

    assign data_o = data_q;
  end

  assign valid_o   = valid_q;
  assign stalled_o = valid_q && !ready_i;

endmodule
