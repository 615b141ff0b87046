// The largest sample of all beats that a count has counted, this cycle's included, and which it was (R14).
//
// Minimum: the smallest. Of equal ones the first. The index is the number of samples counted before it, modulo
// 2**Width. The sample is shifted right (R10). clear_i begins again: the count fires, or is cleared.
module count_action_extreme #(
  parameter int Samples = 1,
  parameter int Width = 32,
  parameter bit Accumulate = 1'b1,
  parameter int Shift = 0,
  parameter bit Signed = 1'b0,
  parameter bit Minimum = 1'b0,
  parameter bit WithIndex = 1'b0
) (
  input  logic                                      clk_i,
  input  logic                                      rst_i,
  input  logic                                      clear_i,
  input  logic [Samples-1:0]                        take_i,
  input  logic [Samples*Width-1:0]                  samples_i,
  output logic [(WithIndex ? 2*Width : Width)-1:0]  beat_o
);

  // With the sign bit inverted, signed numbers are in the order of unsigned ones.
  localparam logic [Width-1:0] Flip = Signed ? ({{(Width - 1) {1'b0}}, 1'b1} << (Width - 1)) : '0;

  logic             any_base, any;
  logic [Width-1:0] best_base, best, index_base, index, counted_base, counted;
  logic [Width-1:0] key, best_key, shifted;
  logic             any_q;
  logic [Width-1:0] best_q, index_q, counted_q;

  // A level count counts beats in the cycle of its fire alone.
  assign any_base     = Accumulate && any_q;
  assign best_base    = Accumulate ? best_q : '0;
  assign index_base   = Accumulate ? index_q : '0;
  assign counted_base = Accumulate ? counted_q : '0;

  always_comb begin
    any      = any_base;
    best     = best_base;
    index    = index_base;
    counted  = counted_base;
    key      = '0;
    best_key = '0;
    for (int i = 0; i < Samples; i++) begin
      key      = samples_i[i*Width+:Width] ^ Flip;
      best_key = best ^ Flip;
      if (take_i[i]) begin
        if (!any || (Minimum ? key < best_key : key > best_key)) begin
          best  = samples_i[i*Width+:Width];
          index = counted;
        end
        any     = 1'b1;
        counted = counted + 1'b1;
      end
    end
  end

  if (Shift == 0) begin : gen_whole
    assign shifted = best;
  end else if (Shift < Width) begin : gen_shift
    logic fill;
    assign fill    = Signed && best[Width-1];
    assign shifted = {{Shift{fill}}, best[Width-1:Shift]};
  end else begin : gen_shifted_out
    assign shifted = {Width{Signed && best[Width-1]}};
  end

  if (WithIndex) begin : gen_index
    assign beat_o = {index, shifted};
  end else begin : gen_no_index
    assign beat_o = shifted;
  end

  always_ff @(posedge clk_i) begin
    if (rst_i || clear_i) begin
      any_q     <= 1'b0;
      best_q    <= '0;
      index_q   <= '0;
      counted_q <= '0;
    end else begin
      any_q     <= any;
      best_q    <= best;
      index_q   <= index;
      counted_q <= counted;
    end
  end

endmodule
