// Each frame is decided once, six cycles after its last beat was taken, and no reply is lost for want of room.
//
// The assertions are about control alone: they hold whatever the frames say.
module packet_request_checks (
  input logic         clk_i,
  input logic         rst_i,
  input logic [47:0]  mac_i,
  input logic [31:0]  address_i,
  input logic [15:0]  port_i,
  input logic [31:0]  now_us_i,
  input logic         rx_valid_i,
  input logic         rx_ready_o,
  input logic [511:0] rx_data_i,
  input logic [63:0]  rx_keep_i,
  input logic         rx_last_i,
  input logic         rx_bad_i,
  input logic [31:0]  model_o,
  input logic         known_i,
  input logic [15:0]  inputs_i,
  input logic         image_ready_i,
  input logic         image_write_o,
  input logic [4:0]   image_word_o,
  input logic [511:0] image_data_o,
  input logic         request_valid_o,
  input logic         request_ready_i,
  input logic [95:0]  request_client_o,
  input logic [31:0]  request_model_o,
  input logic [15:0]  request_inputs_o,
  input logic [63:0]  request_number_o,
  input logic [31:0]  request_deadline_us_o,
  input logic [31:0]  request_arrival_us_o,
  input logic [6:0]   outcome_o,
  input logic         received_o,
  input logic         reply_valid_o,
  input logic         reply_ready_i,
  input logic [233:0] reply_o,
  input logic [511:0] echo_o,
  input logic         echo_next_i,
  input logic         take_i,
  input logic         waits_i,
  input logic         first_i,
  input logic         last_i,
  input logic         begins_i,
  input logic         new_i,
  input logic         ended_i,
  input logic [4:0]   line_i,
  input logic [4:0]   plains_i,
  input logic         plain_i,
  input logic         frame_plain_i,
  input logic         claimed_i,
  input logic [4:0]   owed_i,
  input logic [3:0]   write_i,
  input logic [3:0]   read_i
);

  // The frame of which a beat was taken, but not yet the last.
  logic       known_q = 1'b0;
  logic       reset_q, open_q, held_q;
  logic [5:0] ended_q, plain_q;
  logic [4:0] decided;
  logic [3:0] waiting;
  logic [5:0] hopes;

  // Frames on their way that may be requests.
  assign hopes   = ended_q & plain_q;
  assign waiting = write_i - read_i;
  assign decided = {4'd0, open_q} + {4'd0, ended_q[0]} + {4'd0, ended_q[1]} + {4'd0, ended_q[2]}
                 + {4'd0, ended_q[3]} + {4'd0, ended_q[4]} + {4'd0, ended_q[5]};

  always_ff @(posedge clk_i) begin
    known_q <= 1'b1;
    reset_q <= rst_i;
    held_q  <= !rst_i && request_valid_o && !request_ready_i;
    if (rst_i) begin
      open_q  <= 1'b0;
      ended_q <= '0;
      plain_q <= '0;
    end else begin
      if (take_i) open_q <= !last_i;
      ended_q <= {ended_q[4:0], take_i && last_i};
      if (take_i) plain_q[0] <= plain_i;
      plain_q[5:1] <= plain_q[4:0];
    end
  end

  logic asks;
  assign asks = request_valid_o && !held_q;

  always_comb begin
    if (known_q) begin
      // The beat that waits belongs to the frame that is open, or begins one.
      if (waits_i) begins: assert (first_i == !open_q && begins_i == last_i);
      if (!waits_i) between: assert (begins_i == !open_q);
      ends: assert ({line_i, new_i && ended_i} == ended_q);
      // One outcome or a request for each, and at no other time.
      decides: assert (ended_q[5] == (outcome_o != '0 || asks));
      either: assert (!(outcome_o != '0 && asks));
      if (!ended_q[5]) quiet: assert (outcome_o == '0 && !asks);
      once: assert ((outcome_o & (outcome_o - 1'b1)) == '0);
      // Each frame that is not decided has a place in the queue of replies, and so has each reply that waits.
      owes: assert (owed_i == decided + {1'b0, waiting});
      fits: assert (owed_i <= 5'd15);
      // The image belongs to one frame: the one that is read, one that waits for its verdict, or a request.
      plains: assert ({plains_i, frame_plain_i} == plain_q);
      if (open_q) same: assert (plain_i == plain_q[0]);
      claims: assert (claimed_i == ((open_q && plain_q[0]) || hopes != '0 || held_q));
      if (open_q && plain_q[0]) alone: assert (hopes == '0 && !held_q);
      sole: assert ((hopes & (hopes - 1'b1)) == '0 && !(hopes != '0 && held_q));
      if (asks) asked: assert (hopes[5]);
      if (waiting == '0) unasked: assert (!reply_valid_o);
    end
  end

endmodule
