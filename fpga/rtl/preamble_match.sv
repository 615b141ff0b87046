// Where a preamble (half a cycle high, half a cycle low) stands: match_o[k] is 1 when it begins at sample k.
//
// A sample is high when it is at least the mean. The run that begins at k is compared as a whole, with its own mean:
// a constant idle level, high or low, before it or a first sample of data after it cannot complete it.
// With Published, the samples of one cycle are compared with the preamble rotated by k, as in the published detector:
// a cycle that is partly idle can look like a rotation.
module preamble_match #(
  parameter int Lanes = 16,
  parameter int Width = 16,
  parameter bit Published = 1'b0
) (
  input  logic [Lanes*Width-1:0] current_i,
  // The published comparison reads neither the next cycle nor the means of other places.
  // verilator lint_off UNUSEDSIGNAL
  input  logic [Lanes*Width-1:0] next_i,
  input  logic [Lanes*Width-1:0] means_i,
  // verilator lint_on UNUSEDSIGNAL
  output logic [Lanes-1:0]       match_o
);

  localparam logic [Lanes-1:0] Preamble = {{(Lanes / 2) {1'b0}}, {(Lanes / 2) {1'b1}}};

  if (Published) begin : gen_published
    logic [Lanes-1:0] high;

    for (genvar i = 0; i < Lanes; i++) begin : gen_lanes
      assign high[i] = current_i[i*Width+:Width] >= means_i[Width-1:0];
    end
    assign match_o[0] = high == Preamble;
    for (genvar k = 1; k < Lanes; k++) begin : gen_rotations
      assign match_o[k] = high == {Preamble[Lanes-k-1:0], Preamble[Lanes-1:Lanes-k]};
    end
  end else begin : gen_windows
    // The last run ends before the last sample of the next cycle.
    logic [(2*Lanes-1)*Width-1:0] window;
    assign window = {next_i[(Lanes-1)*Width-1:0], current_i};

    for (genvar k = 0; k < Lanes; k++) begin : gen_places
      logic [Lanes-1:0] high;

      for (genvar i = 0; i < Lanes; i++) begin : gen_lanes
        assign high[i] = window[(k+i)*Width+:Width] >= means_i[k*Width+:Width];
      end
      assign match_o[k] = high == Preamble;
    end
  end

endmodule
