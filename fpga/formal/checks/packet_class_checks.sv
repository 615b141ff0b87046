// A frame is at most one of the three, and each of them is for us.
module packet_class_checks (
  input logic         clk_i,
  input logic         rst_i,
  input logic [47:0]  mac_i,
  input logic [31:0]  address_i,
  input logic [15:0]  port_i,
  input logic [511:0] header_i,
  input logic         arp_o,
  input logic         ping_o,
  input logic         datagram_o
);

  // Byte n of the frame, in the order of the wire.
  logic [7:0] bytes[64];
  for (genvar i = 0; i < 64; i++) begin : gen_bytes
    assign bytes[i] = header_i[8*(63-i)+:8];
  end

  logic to_us, to_all, packet;
  assign to_us  = {bytes[0], bytes[1], bytes[2], bytes[3], bytes[4], bytes[5]} == mac_i;
  assign to_all = {bytes[0], bytes[1], bytes[2], bytes[3], bytes[4], bytes[5]} == '1;
  assign packet = ping_o || datagram_o;

  always_comb begin
    one: assert ({1'b0, arp_o} + {1'b0, ping_o} + {1'b0, datagram_o} <= 2'd1);
    if (arp_o) arps: assert ((to_us || to_all) && {bytes[12], bytes[13], bytes[20], bytes[21]} == 32'h0806_0001
                             && {bytes[38], bytes[39], bytes[40], bytes[41]} == address_i && !bytes[22][0]);
    if (packet) packets: assert (to_us && {bytes[12], bytes[13], bytes[14]} == 24'h08_0045
                                 && {bytes[30], bytes[31], bytes[32], bytes[33]} == address_i);
    if (packet) wholes: assert (bytes[20][5:0] == '0 && bytes[21] == '0);
    if (packet) senders: assert (!bytes[6][0] && bytes[26] != 8'd0 && bytes[26] != 8'd127 && bytes[26] < 8'd224
                                 && {bytes[26], bytes[27], bytes[28], bytes[29]} != address_i);
    if (ping_o) pings: assert (bytes[23] == 8'd1 && bytes[34] == 8'd8 && bytes[35] == 8'd0);
    if (datagram_o) datagrams: assert (bytes[23] == 8'd17 && {bytes[36], bytes[37]} == port_i
                                       && {bytes[34], bytes[35]} != '0);
  end

endmodule
